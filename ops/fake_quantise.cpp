#include "ops/fake_quantise.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/random_lanes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/block_stats.h"
#include "ops/quantise/cpu_amax.h"
#include "ops/quantise/cpu_hadamard.h"
#include "ops/quantise/cpu_lanes.h"

namespace assay {

namespace {

using Tile = float[kHighBand][kFakeColumns];
static_assert(kFakeColumns == kHalvesDrawn);

// The place of a tile in z.
struct Piece {
  RowRange rows;
  int64_t column, columns;  // first, count
  int64_t number;           // among all pieces
  int64_t height() const { return rows.end - rows.begin; }
};

// What all pieces of a copy share.
struct CopyPlan {
  const FakeCopy& to;
  FakeWay way;
  BlockShape block;  // in rows and columns of z
  LineCoder coder;
  RandomKey key;
  int64_t draw_length;
  float s;        // S of the tensor
  int64_t tiled;  // blocks per tile
};

template <typename X>
void load(Tile& tile, const FakeQuantise<X>& a, const Piece& p) {
  for (int64_t r = 0; r < p.height(); ++r) {
    const X* from = row_of(a, p.rows.begin + r) + p.column;
    float* to = tile[r];
#pragma omp simd
    for (int64_t c = 0; c < p.columns; ++c) to[c] = float(from[c]);
    std::fill(to + p.columns, to + kFakeColumns, 0.0f);
  }
}

void rotate(Tile& tile, const Piece& p, uint32_t signs) {
  for (int64_t r = 0; r + kHadamard <= p.height(); r += kHadamard) hadamard_rows(&tile[r], signs);
}

// Calls f(piece) for every tile of every band; the pieces of an unused band have no rows.
template <typename X, typename F>
void for_pieces(Exec on, const FakeQuantise<X>& a, F&& f) {
  const int64_t band = band_rows(a), across = ceil_div(a.x.dim[1], kFakeColumns);
  parallel_for(on, band_count(a, band) * across, [&](int64_t i) {
    const int64_t column = i % across * kFakeColumns;
    const RowRange rows = band_range(a, band, i / across);
    f(Piece{rows, column, std::min(kFakeColumns, a.x.dim[1] - column), i});
  });
}

template <typename X>
void find_amax(Exec on, const FakeQuantise<X>& a) {
  std::atomic<uint32_t> plain = 0, rotated = 0;
  const int rotates = needs_amax(a.column) && a.rotated(FakeWay::kColumn);
  for_pieces(on, a, [&](const Piece& p) {
    alignas(64) Tile tile;
    load(tile, a, p);
    raise_to(plain, largest_bits(tile[0], p.height() * kFakeColumns));
    if (!rotates) return;
    rotate(tile, p, a.signs);
    raise_to(rotated, largest_bits(tile[0], p.height() * kFakeColumns));
  });
  a.amax[0] = std::bit_cast<float>(plain.load());
  a.amax[1] = std::bit_cast<float>(rotated.load());
}

// Largest magnitudes of blocks of kBlock columns, from those of the columns.
template <int64_t kBlock>
void blocks_most(uint32_t* most, const uint32_t* columns) {
  for (int64_t b = 0; b < kFakeColumns / kBlock; ++b) {
    uint32_t block = 0;
#pragma omp simd reduction(max : block)
    for (int64_t i = 0; i < kBlock; ++i) block = std::max(block, columns[b * kBlock + i]);
    most[b] = block;
  }
}

// Largest magnitudes of the line of blocks in rows [first, last) of the tile.
void blocks_most(uint32_t* most, const CopyPlan& plan, const Tile& tile, int64_t first,
                 int64_t last) {
  alignas(64) uint32_t columns[kFakeColumns] = {};
  for (int64_t r = first; r < last; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < kFakeColumns; ++c) {
      const uint32_t bits = magnitude_bits(tile[r][c]);
      columns[c] = bits > columns[c] ? bits : columns[c];
    }
  }
  switch (plan.block.columns) {
    case 1:
      return blocks_most<1>(most, columns);
    case 16:
      return blocks_most<16>(most, columns);
    case 32:
      return blocks_most<32>(most, columns);
    default:
      return blocks_most<128>(most, columns);
  }
}

template <int64_t kBlock>
void spread(LineLanes& to, const BlockLanes& from, int64_t first) {
  for (int64_t b = 0; b < kFakeColumns / kBlock; ++b) {
    const int64_t at = b * kBlock;
    std::fill_n(to.multiply + at, kBlock, from.multiply[first + b]);
    std::fill_n(to.divide + at, kBlock, from.divide[first + b]);
    std::fill_n(to.decode + at, kBlock, from.decode[first + b]);
    std::fill_n(to.sign + at, kBlock, from.sign[first + b]);
  }
}
void spread(LineLanes& to, const BlockLanes& from, int64_t first, int64_t block) {
  switch (block) {
    case 1:
      return spread<1>(to, from, first);
    case 16:
      return spread<16>(to, from, first);
    case 32:
      return spread<32>(to, from, first);
    default:
      return spread<128>(to, from, first);
  }
}

// The random half words of the rows of a tile. A column copy draws those of eight rows together.
class Draws {
 public:
  Draws(const CopyPlan& plan, const Piece& p) : plan_(plan), piece_(p) {}

  const uint16_t* line(int64_t row) {
    if (plan_.to.format.rounding == Rounding::kNearest) return half_;
    if (plan_.way == FakeWay::kRow) {
      const int64_t first = row * plan_.draw_length + piece_.column;
      draw_halves(plan_.key, static_cast<uint64_t>(first / 8), half_);
      return half_;
    }
    if (row / 8 != eighth_) {
      eighth_ = row / 8;
      const int64_t stride = plan_.draw_length / 8;
      for (int64_t c = 0; c < piece_.columns; c += kBlocksDrawn) {
        const int64_t block = (piece_.column + c) * stride + eighth_;
        draw_words(plan_.key, static_cast<uint64_t>(block), static_cast<uint64_t>(stride),
                   words_[c / kBlocksDrawn]);
      }
    }
    const auto word = row % 8 / 2, shift = row % 2 * 16;
    for (int64_t c = 0; c < piece_.columns; ++c) {
      const uint32_t both = words_[c / kBlocksDrawn][word][c % kBlocksDrawn];
      half_[c] = static_cast<uint16_t>(both >> shift);
    }
    return half_;
  }

 private:
  const CopyPlan& plan_;
  const Piece& piece_;
  int64_t eighth_ = -1;
  uint32_t words_[kFakeColumns / kBlocksDrawn][4][kBlocksDrawn];
  uint16_t half_[kHalvesDrawn];
};

// The earlier copy's decoding factors for a line of blocks, one per column. scales: null: 1.
void earlier_decode(float* decode, const CopyPlan& plan, const bf16* scales) {
  for (int64_t c = 0; c < kFakeColumns; ++c) {
    decode[c] = scales == nullptr ? 1.0f : float(scales[c / plan.block.columns]);
  }
}

// Calls f(number in the tile) for the blocks of the piece that are inside z, in order.
template <typename F>
void for_blocks(const CopyPlan& plan, const Piece& p, F&& f) {
  const int64_t across = kFakeColumns / plan.block.columns;
  for (int64_t r = 0; r < ceil_div(p.height(), plan.block.lines); ++r) {
    for (int64_t c = 0; c < ceil_div(p.columns, plan.block.columns); ++c) f(r * across + c);
  }
}

void measure_blocks(double* sums, const CopyPlan& plan, const Piece& p, const uint32_t* most) {
  if (plan.to.format.scale == ScaleKind::kTensor) return;
  BlockCounts counts;
  for_blocks(plan, p, [&](int64_t b) {
    counts.add(plan.to.format, block_scale(plan.to.format, plan.s, most[b]), most[b]);
  });
  for (int m = kFakeBlocks; m < kFakeMeasures; ++m) sums[m] = merged(m, sums[m], counts.value(m));
}

// Makes one piece of a copy. sums: the copy's part of a row of `partial`, or null.
void quantise_piece(const CopyPlan& plan, const Piece& p, const Tile& tile, double* sums,
                    const View<uint32_t, 1>& not_finite) {
  if (p.height() == 0) return;
  const int64_t lines = plan.block.lines, across = kFakeColumns / plan.block.columns;
  alignas(64) uint32_t most[kMostBlocks];
  for (int64_t r = 0; r < p.height(); r += lines) {
    blocks_most(most + r / lines * across, plan, tile, r, std::min(p.height(), r + lines));
  }
  const int64_t count = ceil_div(p.height(), lines) * across;
  mark_not_finite(not_finite, plan.to.site, *std::max_element(most, most + count));
  BlockLanes blocks;
  plan.coder.block_scales(blocks, plan.to.format, plan.s, most, count);
  bf16* const scales =
      plan.to.scales.empty() ? nullptr : plan.to.scales.data + p.number * plan.tiled;
  const int flips = sums != nullptr && plan.to.flips == Flips::kCounted;
  LineLanes scale;
  alignas(64) float earlier[kFakeColumns];
  alignas(64) bf16 earlier_y[kFakeColumns];
  Draws draws(plan, p);
  for (int64_t r = 0; r < p.height(); ++r) {
    if (r % lines == 0) {
      spread(scale, blocks, r / lines * across, plan.block.columns);
      if (flips)
        earlier_decode(earlier, plan, scales == nullptr ? nullptr : scales + r / lines * across);
    }
    bf16* y = plan.to.y.row(p.rows.begin + r) + p.column;
    if (flips) std::copy_n(y, p.columns, earlier_y);
    plan.coder.encode(y, tile[r], scale, plan.coder.grid, draws.line(p.rows.begin + r), p.columns);
    if (sums != nullptr) {
      measure_line(sums, plan.to.format, y, tile[r], scale, plan.s, p.columns);
    }
    if (flips) {
      sums[kFakeFlips] +=
          double(count_flips(plan.coder.grid, earlier_y, earlier, y, scale.decode, p.columns));
    }
  }
  if (sums != nullptr) measure_blocks(sums, plan, p, most);
  if (scales == nullptr) return;
  for_blocks(plan, p, [&](int64_t b) { scales[b] = bf16(blocks.decode[b]); });
}

template <typename X>
float amax_of(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  return needs_amax(copy) ? a.amax_of(way) : 0.0f;
}

template <typename X>
CopyPlan plan_copy(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  const float s = tensor_scale(copy.format, amax_of(a, copy, way));
  if (needs_amax(copy)) {
    copy.tensor_scale[0] = s;
    copy.tensor_scale[1] = s == s ? 1.0f / s : kScaleNaN;
  }
  return {copy,
          way,
          fake_block(copy.format.scale, way),
          line_coder(copy.format),
          draw_key(a, copy),
          draw_length(a, copy, way),
          s,
          blocks_of_tile(fake_block(copy.format.scale, way), band_rows(a))};
}

void add_partial(const View<double, 1>& measures, const View<double, 2>& partial, int64_t pieces) {
  for (int64_t i = 0; i < pieces; ++i) {
    for (int64_t m = 0; m < measures.dim[0]; ++m) {
      measures[m] = merged(int(m % kFakeMeasures), measures[m], partial.at(i, m));
    }
  }
}

void add_tensor(double* measures, const CopyPlan& plan, float amax) {
  for (int m = kFakeBlocks; m < kFakeMeasures; ++m) {
    measures[m] = merged(m, measures[m], tensor_measure(m, plan.to.format, plan.s, amax));
  }
}

template <typename X>
void check_copy(const char* name, const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  if (copy.y.empty()) return;
  CHECK(copy.y.dim[0] == a.rows() && copy.y.dim[1] == a.x.dim[1],
        "fake_quantise: %s: y (%ld, %ld) of (%ld, %ld)", name, long(copy.y.dim[0]),
        long(copy.y.dim[1]), long(a.rows()), long(a.x.dim[1]));
  CHECK(!needs_amax(copy) || copy.tensor_scale.size() == 2,
        "fake_quantise: %s: tensor_scale (%ld), needs (2)", name, long(copy.tensor_scale.size()));
  CHECK(!a.finds_amax(way) || a.amax.size() == 2, "fake_quantise: %s: amax (%ld), needs (2)", name,
        long(a.amax.size()));
  const int64_t scales =
      fake_quantise_scales(copy.format.scale, way, a.rows(), a.segments(), a.x.dim[1]);
  CHECK(copy.scales.empty()
            ? copy.flips == Flips::kNotCounted || scales == 0
            : scales > 0 && copy.scales.size() >= scales && (a.row.y.empty() || a.column.y.empty()),
        "fake_quantise: %s: scales (%ld), needs %ld and no other copy in the call", name,
        long(copy.scales.size()), long(scales));
}

}  // namespace

namespace cpu {

template <typename X>
void fake_quantise(Exec on, const FakeQuantise<X>& a) {
  if (a.finds_amax()) find_amax(on, a);
  const CopyPlan row = plan_copy(a, a.row, FakeWay::kRow);
  const CopyPlan column = plan_copy(a, a.column, FakeWay::kColumn);
  for_pieces(on, a, [&](const Piece& p) {
    double* sums = a.measures.empty() ? nullptr : a.partial.row(p.number);
    if (sums != nullptr) std::fill_n(sums, 2 * kFakeMeasures, 0.0);
    alignas(64) Tile tile;
    load(tile, a, p);
    if (!a.row.y.empty()) quantise_piece(row, p, tile, sums, a.not_finite);
    if (a.column.y.empty()) return;
    if (a.rotation == ColumnRotation::kHadamard16) rotate(tile, p, a.signs);
    quantise_piece(column, p, tile, sums == nullptr ? nullptr : sums + kFakeMeasures, a.not_finite);
  });
  if (!a.measures.empty()) {
    const int64_t across = ceil_div(a.x.dim[1], kFakeColumns);
    add_partial(a.measures, a.partial, band_count(a, band_rows(a)) * across);
    if (a.rows() == 0) return;
    if (!a.row.y.empty()) add_tensor(a.measures.data, row, amax_of(a, a.row, FakeWay::kRow));
    if (!a.column.y.empty())
      add_tensor(a.measures.data + kFakeMeasures, column, amax_of(a, a.column, FakeWay::kColumn));
  }
}

}  // namespace cpu

int64_t fake_quantise_scales(ScaleKind kind, FakeWay way, int64_t rows, int64_t segments,
                             int64_t columns) {
  if (kind == ScaleKind::kTensor) return 0;
  const BlockShape block = fake_block(kind, way);
  const int64_t band = block.lines > kLowBand ? kHighBand : kLowBand;
  return (rows / band + segments) * ceil_div(columns, kFakeColumns) * blocks_of_tile(block, band);
}

int64_t fake_quantise_pieces(int64_t rows, int64_t segments, int64_t columns) {
  return (rows / kLowBand + segments) * ceil_div(columns, kFakeColumns);
}

template <typename X>
void fake_quantise(Exec on, const FakeQuantise<X>& a) {
  const ProfileScope timed(on, "fake_quantise", fake_quantise_cost(a));
  if (!a.row.y.empty()) require_whole_blocks("row copy", a.row.format.scale, a.x.dim[1]);
  check_copy("row copy", a, a.row, FakeWay::kRow);
  check_copy("column copy", a, a.column, FakeWay::kColumn);
  const int64_t pieces = fake_quantise_pieces(a.rows(), a.segments(), a.x.dim[1]);
  CHECK(a.measures.empty() || (a.measures.dim[0] == 2 * kFakeMeasures &&
                               a.partial.dim[0] >= pieces && a.partial.dim[1] == 2 * kFakeMeasures),
        "fake_quantise: measures (%ld), partial (%ld, %ld), needs (%d) and (%ld, %d)",
        long(a.measures.dim[0]), long(a.partial.dim[0]), long(a.partial.dim[1]), 2 * kFakeMeasures,
        long(pieces), 2 * kFakeMeasures);
  if (on.gpu) return gpu::fake_quantise(on, a);
  CHECK(a.offsets.empty() || (a.offsets[0] == 0 && a.offsets[a.segments()] == a.rows()),
        "fake_quantise: offsets from %d to %d for %ld rows", a.offsets[0], a.offsets[a.segments()],
        long(a.rows()));
  cpu::fake_quantise(on, a);
}

template void fake_quantise(Exec, const FakeQuantise<float>&);
template void fake_quantise(Exec, const FakeQuantise<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(fake_quantise, FakeQuantise<float>)
ASSAY_GPU_ABSENT(fake_quantise, FakeQuantise<bf16>)
}  // namespace gpu

}  // namespace assay
