#include "ops/quantise/cpu_fake_piece.h"

#include <algorithm>

#include "ops/quantise/block_stats.h"
#include "ops/quantise/cpu_amax.h"
#include "ops/quantise/cpu_fake_draws.h"
#include "ops/quantise/scale.h"

namespace assay::fake {

namespace {

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

}  // namespace

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

}  // namespace assay::fake
