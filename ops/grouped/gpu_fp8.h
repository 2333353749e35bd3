// Main loop of a grouped GEMM of FP8 codes. Tensor cores keep about 14 bits of a sum of fp8
// products, so their sums end after one stage: 128 of the K index, which is also a block of the
// scales. The stages are summed in float.
#pragma once

#include <cmath>

#include "cuda/gpu.h"
#include "ops/grouped/gpu_mainloop.h"
#include "ops/grouped_scaled.h"

namespace assay::gpu {

// Decode scales of the accumulators of a thread for one stage: of its two rows, and of the two
// halves of the columns of the tile.
struct GroupedStageScales {
  float a[2], b[2];
};

// Rows of x, or of dy, of this thread's accumulators: 8 apart, from row of_warp of the tile on.
// Rows past the segment read the scale of its last row.
struct GroupedScaleRows {
  int64_t at[2];
};
template <typename Tile, typename Args>
GPU_DEVICE GroupedScaleRows scale_rows(const Args& g, const GroupedPart& part, int of_warp) {
  GroupedScaleRows rows;
  for (int half = 0; half < 2; ++half) {
    const int wanted = of_warp + accum_row(2 * half),
              r = wanted < part.rows ? wanted : part.rows - 1;
    rows.at[half] = Tile::gathered ? g.row[part.begin + r] : part.begin + r;
  }
  return rows;
}

template <typename Tile, typename Args>
GPU_DEVICE GroupedStageScales stage_scales(const Args& g, const GroupedAt& at,
                                           const GroupedScaleRows& rows, int block) {
  constexpr int kBlock = 128;
  GroupedStageScales s;
  for (int half = 0; half < 2; ++half) {
    // With SwiGLU the second half is columns of up, which follow those of the gate.
    const int column = at.n + (Tile::swiglu ? half * g.n : 0);
    s.a[half] = g.blocks.a[rows.at[half] * g.blocks.a_row + block * g.blocks.a_block];
    s.b[half] =
        g.blocks
            .b[at.part.expert * g.blocks.b_expert + column / kBlock * g.blocks.b_row_block + block];
  }
  return s;
}

// acc += part, scaled.
template <int N>
GPU_DEVICE void add_scaled(float (&acc)[N / 2], const float (&part)[N / 2],
                           const GroupedStageScales& s) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i)
    acc[i] = fmaf(part[i], s.a[accum_half(i)] * s.b[i / (N / 4)], acc[i]);
}

// multiply_tile (ops/grouped/gpu_mainloop.h) for FP8 codes. While one warpgroup adds, the products
// of the other run.
template <typename Tile>
GPU_DEVICE void multiply_codes(float (&acc)[Tile::N / 2], const GroupedTileArgs& g,
                               const GroupedAt& at, int active, GroupedRing<Tile::stages>& ring,
                               unsigned char* shared, const GroupedBarriers& barriers) {
  constexpr Fp8 A = Tile::Element == GroupedElement::kE4M3 ? Fp8::kE4M3 : Fp8::kE5M2;
  const int a_offset = (warp() / 4 - 1) * kGroupedSlabBytes;
  const int in_blocks = g.blocks.a != nullptr;
  const int of_warp = (warp() / 4 - 1) * 64 + warp() % 4 * 16;
  const GroupedScaleRows rows =
      in_blocks ? scale_rows<Tile>(g, at.part, of_warp) : GroupedScaleRows{};
  for (float& sum : acc) sum = 0;
  // Initialised although the first product of each stage overwrites it: otherwise its registers
  // stay allocated outside this function.
  float part[Tile::N / 2] = {};

  // Main loop.
  for (int k = 0; k < at.k_tiles; ++k, ring.advance()) {
    unsigned char* const stage = shared + ring.stage * Tile::stage_bytes;
    const GroupedStageScales scales =
        in_blocks ? stage_scales<Tile>(g, at, rows, k) : GroupedStageScales{{1, 1}, {1, 1}};

    // Products of the stage.
    mbarrier_wait(&barriers.full[ring.stage], ring.round);
    if constexpr (Tile::gathered) fence_proxy_async();  // as in multiply_tile
    if (active) {
      wgmma_fence();
      for (int step = 0; step < kGroupedTileK / 16; ++step) {
        wgmma_m64k32<Tile::N, A>(part, grouped_descriptor<Major::kK>(stage + a_offset, step),
                                 grouped_descriptor<Major::kK>(stage + Tile::a_bytes, step),
                                 step != 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_arrived(part);
    } else {
      sync_warp();  // all lanes have seen the stage full before lane 0 releases it
    }

    // Release the stage; add its sums.
    if (lane() == 0) mbarrier_arrive(&barriers.empty[ring.stage]);
    if (active) add_scaled<Tile::N>(acc, part, scales);
  }
}

// --- Host.

// Codes move as pairs (ops/grouped/gpu_mainloop.h).
inline const bf16* code_pairs(const CodedMatrix& m) {
  return reinterpret_cast<const bf16*>(m.codes.data);
}

inline GroupedBlockScales block_scales(const CodedMatrix& x, const CodedStack& w) {
  if (!has_float_scales(x.format.scale)) return {};
  const auto at = [](const CodedMatrix& m, int64_t line, int64_t block) {
    return scale_index(m.format, m.lines(), m.k(), line, block);
  };
  const bool along_k = w.along == CodedStack::Experts::kAlongK;
  return {.a = x.scales.data,
          .a_row = at(x, 1, 0),
          .a_block = at(x, 0, 1),
          .b = w.all.scales.data,
          .b_expert = along_k ? at(w.all, 0, w.k() / 128) : at(w.all, w.lines(), 0),
          .b_row_block = at(w.all, 128, 0)};
}

}  // namespace assay::gpu
