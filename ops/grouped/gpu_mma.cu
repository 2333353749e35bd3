#include <algorithm>

#include "base/math.h"
#include "cuda/launch.h"
#include "ops/grouped/gpu_mma.h"
#include "ops/grouped/gpu_tensor.h"

namespace assay::gpu {

namespace {

// Rows of a are read once per 128 columns of c, weights once per 128 rows of an expert, mostly from
// L2. dweight is written once, as by the kernel of ops/grouped/gpu_launch.h. Bound by mma.sync and
// by shared memory: a warp reads 96 bytes (with SwiGLU 80) for each 1024 products of a step.
template <typename Tile>
__global__ __launch_bounds__(kMmaThreads, Tile::resident) void grouped_mma_kernel(
    const __grid_constant__ GroupedMmaArgs g) {
  GPU_DYNAMIC_SHARED(bf16, shared);
  constexpr bool kSumsTokens = Tile::Kind == GroupedKind::kWgrad;
  const GroupedMmaWarp mine = mma_warp();
  const int tiles = *g.work.count * grouped_tiles_of_part<Tile>(g);
  for (int t = int(blockIdx.x); t < tiles; t += int(gridDim.x)) {
    const GroupedAt at = grouped_at<Tile>(g, t, grouped_part<Tile>(g, t));
    GroupedMmaSums<Tile> sums;
    multiply_tile<Tile>(sums, g, at, shared, mine);

    // Epilogue, 16 rows at a time, through the stage that would be next: all warps have read it.
    unsigned char* const staging =
        reinterpret_cast<unsigned char*>(shared + at.k_tiles % kMmaStages * Tile::stage) +
        warp() * (kGroupedStagingBytes / 8);
    const int column = at.n + mine.column;
#pragma unroll
    for (int m = 0; m < kMmaRowTiles; ++m) {
      float acc[Tile::n_tiles * 4];
      flatten(acc, sums[m]);
      if (!g.scale.empty()) {
        const float scale = g.scale.factor();
        for (float& sum : acc) sum *= scale;
      }
      const int of_tile = mine.row + 16 * m;
      const int rows = (kSumsTokens ? g.m - at.m : at.part.rows) - of_tile;
      const int64_t row = at.part.begin + of_tile;
      if constexpr (kSumsTokens) {
        float* const to = sum_matrix(g, at.part) + int64_t{at.m + of_tile} * g.n;
        read_add_write_rows<kGroupedSlab>(acc, g.adds != 0 && at.part.slot == 0, to, rows, column,
                                          g.n);
      } else if constexpr (Tile::End == GroupedEnd::kPlain) {
        store_rows<kGroupedSlab>(acc, staging, g, row, rows, column);
      } else if constexpr (Tile::swiglu) {
        store_swiglu<2 * kGroupedSlab>(acc, staging, g, row, rows, column);
      } else {
        store_gradient(acc, staging, g, row, rows, column);
      }
    }
    sync_block();  // the stages are free for the next tile
  }
}

template <typename Tile>
void launch_tiles(Exec on, const char* name, const GroupedMmaArgs& g, int64_t parts) {
  const int64_t of_part = int64_t{ceil_div(g.n, Tile::columns)} *
                          (Tile::Kind == GroupedKind::kWgrad ? ceil_div(g.m, kGroupedTileM) : 1);
  const int64_t blocks =
      std::min<int64_t>(parts * of_part, int64_t{on.gpu->multiprocessors} * Tile::resident);
  launch(on,
         {.name = name,
          .grid = {uint32_t(blocks)},
          .block = {kMmaThreads},
          .shared_bytes = Tile::shared_bytes},
         grouped_mma_kernel<Tile>, g);
}

}  // namespace

void grouped_forward_mma(Exec on, const GroupedForward<bf16>& a) {
  constexpr const char* kName = "grouped_linear_forward";
  const auto& w = a.weight.plain;
  const int64_t assignments = a.y.dim[0];
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  launch_tiles<GroupedMmaTile<GroupedKind::kForward>>(
      on, kName,
      {.a = a.x.data,
       .b = w.data,
       .c = a.y.data,
       .row = a.row.data,
       .work = work,
       .n = int(w.dim[1]),
       .k = int(w.dim[2]),
       .scale = a.scale},
      grouped_parts_limit(assignments, w.dim[0], kGroupedTileM));
}

void grouped_dgrad_mma(Exec on, const GroupedDgrad<bf16>& a) {
  constexpr const char* kName = "grouped_linear_dgrad";
  const auto& w = a.weight.plain;
  const int64_t assignments = a.dy.dim[0];
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  launch_tiles<GroupedMmaTile<GroupedKind::kDgrad>>(
      on, kName,
      {.a = a.dy.data,
       .b = w.data,
       .c = a.dx.data,
       .work = work,
       .n = int(w.dim[2]),
       .k = int(w.dim[1]),
       .scale = a.scale},
      grouped_parts_limit(assignments, w.dim[0], kGroupedTileM));
}

void grouped_wgrad_mma(Exec on, const GroupedWgrad<bf16>& a) {
  constexpr const char* kName = "grouped_linear_wgrad";
  const int64_t assignments = a.dy.dim[0], experts = a.dweight.dim[0];
  const int64_t out = a.dweight.dim[1], in = a.dweight.dim[2];
  const GroupedParts work = grouped_parts(on, kName, assignments, experts, out, in, a.most_rows);
  order_experts(on, work, a.offsets, GroupedCut::kPieces);
  const int64_t slots = grouped_slots(assignments, a.most_rows);
  launch_tiles<GroupedMmaTile<GroupedKind::kWgrad>>(on, kName,
                                                    {.a = a.dy.data,
                                                     .b = a.x.data,
                                                     .c = a.dweight.data,
                                                     .row = a.row.data,
                                                     .work = work,
                                                     .m = int(out),
                                                     .n = int(in),
                                                     .adds = a.sum == GradientSum::kAdd,
                                                     .scale = a.scale},
                                                    std::min(experts, assignments) + slots);
  if (slots > 0) add_pieces(on, work, a.dweight, a.sum);
  if (a.sum == GradientSum::kStore) zero_idle_experts(on, a.offsets, a.dweight);
}

void grouped_swiglu_forward_mma(Exec on, const GroupedSwigluForward<bf16>& a) {
  constexpr const char* kName = "grouped_swiglu_forward";
  const auto& w = a.weight.plain;
  const int64_t assignments = a.h.dim[0];
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  launch_tiles<GroupedMmaTile<GroupedKind::kForward, GroupedEnd::kSwiglu>>(
      on, kName,
      {.a = a.x.data,
       .b = w.data,
       .c = a.gate_up.data,
       .h = a.h.data,
       .row = a.row.data,
       .work = work,
       .n = int(a.h.dim[1]),
       .k = int(w.dim[2]),
       .scale = a.scale,
       .amax = a.amax.data},
      grouped_parts_limit(assignments, w.dim[0], kGroupedTileM));
}

void grouped_swiglu_dgrad_mma(Exec on, const GroupedSwigluDgrad<bf16>& a) {
  constexpr const char* kName = "grouped_swiglu_dgrad";
  const auto& w = a.weight.plain;
  const int64_t assignments = a.dy.dim[0];
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  launch_tiles<GroupedMmaTile<GroupedKind::kDgrad, GroupedEnd::kSwigluGradient>>(
      on, kName,
      {.a = a.dy.data,
       .b = w.data,
       .c = a.dgate_up.data,
       .gate_up = a.gate_up.data,
       .work = work,
       .n = int(w.dim[2]),
       .k = int(w.dim[1]),
       .scale = a.scale,
       .amax = a.amax.data},
      grouped_parts_limit(assignments, w.dim[0], kGroupedTileM));
}

}  // namespace assay::gpu
