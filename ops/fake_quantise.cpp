#include "ops/fake_quantise.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/block_stats.h"
#include "ops/quantise/cpu_amax.h"
#include "ops/quantise/cpu_fake_piece.h"
#include "ops/quantise/cpu_hadamard.h"
#include "ops/quantise/cpu_lanes.h"

namespace assay {

namespace {

using fake::CopyPlan;
using fake::Piece;
using fake::Tile;

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

template <typename X>
float amax_of(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  return needs_amax(copy) ? a.amax_of(way) : 0.0f;
}

template <typename X>
CopyPlan plan_copy(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  const float s = tensor_scale(copy.format, amax_of(a, copy, way));
  if (needs_amax(copy)) {
    copy.tensor_scale[0] = s == s ? 1.0f / s : kScaleNaN;
    copy.tensor_scale[1] = s;
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
    if (!a.row.y.empty()) fake::quantise_piece(row, p, tile, sums, a.not_finite);
    if (a.column.y.empty()) return;
    if (a.rotation == ColumnRotation::kHadamard16) rotate(tile, p, a.signs);
    fake::quantise_piece(column, p, tile, sums == nullptr ? nullptr : sums + kFakeMeasures,
                         a.not_finite);
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
