// The kernel of the grouped GEMMs by wgmma and its launch, for ops/grouped/gpu_*_wgmma.cu and
// ops/grouped_scaled.cu.
#pragma once

#include <algorithm>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/grouped/gpu_epilogue.h"
#include "ops/grouped/gpu_fp8.h"
#include "ops/grouped/gpu_mainloop.h"
#include "ops/grouped/gpu_work_list.h"

namespace assay::gpu {

// Each block owns tiles of 128 x N, half of each per math warpgroup (1 and 2). Warpgroup 0 copies
// ahead, across tiles, so that the ring fills while a tile is stored. Rows of a are read once per N
// columns of c, weights once per 128 rows of an expert, mostly from L2. dweight is read and written
// once, by the one block that has the whole sum over the tokens of an expert (or over one piece of
// a very large expert): its bits depend on nothing else. Bound at 65536 tokens, width 768, 7 of 256
// experts, ffn 384, by the tensor cores, at 790 TFLOP/s: first product, its dgrad and wgrad 541 GF
// and 1.1, 1.7 and 2.0 GB, 685 us each; second 271 GF and 1.2, 1.2 and 1.7 GB, 343 us each.
template <typename Tile>
__global__ __launch_bounds__(kGroupedThreads,
                             1) void grouped_kernel(const __grid_constant__ GroupedTileArgs g) {
  GPU_DYNAMIC_SHARED(unsigned char, shared);
  GPU_SHARED(Mbarrier, full, [Tile::stages]);
  GPU_SHARED(Mbarrier, empty, [Tile::stages]);

  // Barriers.
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::stages; ++i) {
      mbarrier_init(&full[i], Tile::full_arrivals);
      mbarrier_init(&empty[i], Tile::empty_arrivals);
    }
    mbarrier_init_fence();
  }
  sync_block();
  const GroupedBarriers barriers = {full, empty};

  // Producer warpgroup: TMA loads and gathered rows.
  if (warp() < 4) {
    set_registers_down<40>();
    if (Tile::gathered || threadIdx.x == 0) copy_tiles<Tile>(g, shared, barriers);
    return;
  }

  // Math warpgroups.
  set_registers_up<232>();
  constexpr bool kSumsTokens = Tile::Kind == GroupedKind::kWgrad;
  const int of_group = (warp() / 4 - 1) * 64, of_warp = of_group + warp() % 4 * 16;
  unsigned char* const staging =
      shared + Tile::stages * Tile::stage_bytes + (warp() - 4) * (Tile::staging_bytes / 8);
  GroupedRing<Tile::stages> ring;
  float acc[Tile::N / 2];
  for (GroupedWalk<Tile> walk(g); walk.more();) {
    const GroupedAt at = walk.next();
    const int rows = kSumsTokens ? g.m - at.m : at.part.rows;
    const int64_t row = at.part.begin + of_warp;
    [[maybe_unused]] GroupedGateUp gate_up;
    if constexpr (Tile::End == GroupedEnd::kSwigluGradient)
      gate_up = fetch_gate_up(g, row, rows - of_warp, at.n);

    // Main loop.
    if constexpr (Tile::quantised) {
      multiply_codes<Tile>(acc, g, at, of_group < rows, ring, shared, barriers);
    } else {
      multiply_tile<Tile>(acc, at, of_group < rows, ring, shared, barriers);
    }

    // Epilogue.
    if (!g.scale.empty()) {
      const float scale = g.scale.factor();  // read here, where registers are free; from L1
      for (float& sum : acc) sum *= scale;
    }
    if constexpr (kSumsTokens) {
      float* const to = sum_matrix(g, at.part) + int64_t{at.m + of_warp} * g.n;
      wgmma_arrived(acc);  // without it ptxas serialises the products, because lanes exchange sums
      send_rows<Tile::N>(acc, sum_way(g, at.part), to, rows - of_warp, at.n, g.n);
    } else if constexpr (Tile::bulk_stores) {
      send_rows_in_bulk<Tile>(acc, staging, g, row, rows - of_warp, at.n);
    } else if constexpr (Tile::End == GroupedEnd::kPlain) {
      store_rows<Tile::N>(acc, staging, g, row, rows - of_warp, at.n);
    } else if constexpr (Tile::swiglu) {
      store_swiglu<Tile::N>(acc, staging, g, row, rows - of_warp, at.n);
    } else {
      store_dswiglu<Tile::N>(acc, gate_up, staging, g, row, rows - of_warp, at.n);
    }
  }
  if (Tile::bulk_stores && lane() == 0) bulk_wait_read<0>();
}

// --- Launch.

// Tile width that computes least past the edge; among equals the widest.
inline int tile_width(int64_t n) {
  int best = 256;
  for (const int width : {192, 128}) {
    if (round_up(n, width) < round_up(n, best)) best = width;
  }
  return best;
}

// bf16 (rows, width) in boxes of 64 columns.
inline TensorMap rows_map(const char* name, const bf16* base, int64_t rows, int64_t width,
                          int box_rows) {
  return make_tensor_map({.name = name,
                          .base = base,
                          .rank = 2,
                          .dim = {width, rows},
                          .stride_bytes = {width * 2},
                          .box = {kGroupedSlab, box_rows}});
}
inline TensorMap weight_map(View<const bf16, 3> w, int box_rows) {
  return make_tensor_map({.name = "expert weights",
                          .base = w.data,
                          .rank = 3,
                          .dim = {w.dim[2], w.dim[1], w.dim[0]},
                          .stride_bytes = {w.dim[2] * 2, w.dim[1] * w.dim[2] * 2},
                          .box = {kGroupedSlab, box_rows, 1}});
}

// rows: of c, where it is neither a product with SwiGLU nor a sum.
template <typename Tile>
void launch_tiles(Exec on, const char* name, GroupedTileArgs g, int64_t parts, int64_t rows = 0) {
  if constexpr (Tile::bulk_stores) {
    g.c_map = rows_map("c", static_cast<const bf16*>(g.c), rows, g.n, 16);
  }
  const int64_t tiles = parts * ceil_div(g.n, Tile::columns) *
                        (Tile::Kind == GroupedKind::kWgrad ? ceil_div(g.m, kGroupedTileM) : 1);
  launch(on,
         {.name = name,
          .grid = {uint32_t(std::min<int64_t>(tiles, on.gpu->multiprocessors))},
          .block = {kGroupedThreads},
          .shared_bytes = Tile::shared_bytes},
         grouped_kernel<Tile>, g);
}
// Calls f.template operator()<N>() for the tile width of n columns.
template <typename F>
void with_tile_width(int64_t n, F&& f) {
  const int width = tile_width(n);
  if (width == 256) return f.template operator()<256>();
  if (width == 192) return f.template operator()<192>();
  f.template operator()<128>();
}

}  // namespace assay::gpu
