// Attention forward in bf16 by mma.sync, for every head width and length.
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention.h"
#include "ops/attention/gpu_forward_wgmma.h"
#include "ops/attention/gpu_fragments.h"

namespace assay::gpu {

namespace {

using namespace attention;

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kKeys = 64;  // keys per tile

template <int D>
struct Block {
  // Two row tiles of 16 queries per warp halve the shared memory reads of K and V; at D = 128
  // registers allow one.
  static constexpr int kRowTiles = D == 128 ? 1 : 2;
  static constexpr int kWarpQueries = 16 * kRowTiles;
  static constexpr int kQueries = kWarps * kWarpQueries;
  static constexpr int kSharedBytes = (kQueries + 4 * kKeys) * D * int(sizeof(bf16));
};

// Each block owns 128 queries of a head (64 at D = 128), each warp 32 (16); Q and the sums stay in
// registers. Tiles of 64 keys and values pass through two stages of shared memory, the next one
// loading while this one is used; each is read from L2 once per block. Bound by mma.sync (2/3 of
// the wgmma rate at best) and, at D <= 64, by the exponentials: 16 per clock and SM, against 4 D
// FLOP each. Blocks with the most keys start first.
template <int D>
__global__ __launch_bounds__(kThreads, 2) void attention_forward_kernel(
    const __grid_constant__ AttentionForward<bf16> a) {
  using B = Block<D>;
  constexpr int kN = kKeys / 8;
  GPU_DYNAMIC_SHARED(bf16, shared);
  bf16* const q_tile = shared;
  bf16* const k_tiles = shared + B::kQueries * D;
  bf16* const v_tiles = k_tiles + 2 * kKeys * D;

  const int heads = int(a.heads), sequence = int(a.sequence), stride = int(a.qkv.dim[1]);
  const int b = int(blockIdx.x) / heads, h = int(blockIdx.x) % heads;
  const int kv = h / (heads / int(a.kv_heads));
  const int q0 = int(gridDim.y - 1 - blockIdx.y) * B::kQueries;
  const bf16* const rows = a.qkv.row(b * a.sequence);
  const bf16* const k = rows + (heads + kv) * D;
  const int64_t v_from_k = a.kv_heads * D;
  const int tiles = ceil_div(smaller(q0 + B::kQueries, sequence), kKeys);
  const auto copy_tile = [&](int tile) {
    const int k0 = tile * kKeys, at = tile % 2 * kKeys * D;
    const bf16* const from = k + int64_t{k0} * stride;
    copy_rows<D, kKeys, kThreads>(k_tiles + at, from, stride, sequence - k0);
    copy_rows<D, kKeys, kThreads>(v_tiles + at, from + v_from_k, stride, sequence - k0);
    cp_async_commit();
  };

  // Prologue: Q and the first tile.
  copy_rows<D, B::kQueries, kThreads>(q_tile, rows + (int64_t{q0} * stride + h * D), stride,
                                      sequence - q0);
  copy_tile(0);

  // Q and accumulators.
  HeldRows<D, B::kRowTiles> q;
  float out[B::kRowTiles][D / 8][4] = {};
  float top[B::kRowTiles][2], sum[B::kRowTiles][2];
#pragma unroll
  for (int m = 0; m < B::kRowTiles; ++m) {
    top[m][0] = top[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0;
  }
  const float scale = kLog2E * inverse_root<D>();
  const int warp_row = warp() * B::kWarpQueries;
  const int first_query = q0 + warp_row;

  // Main loop.
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<0>();
    sync_block();  // this tile has landed, and the other stage is free
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (tile == 0) q.start(q_tile, warp_row);
    const int k0 = tile * kKeys;
    // All keys are later than the warp's queries.
    if (k0 >= first_query + B::kWarpQueries) continue;
    const int at = tile % 2 * kKeys * D;

    // Scores and mask.
    float s[B::kRowTiles][kN][4];
    multiply_rows<D>(s, q, k_tiles + at, 0);
    if (k0 + kKeys > first_query) {
#pragma unroll
      for (int m = 0; m < B::kRowTiles; ++m) {
        // The last key, relative to k0, that the lane's upper row sees. This also masks keys past
        // the sequence.
        const int last = first_query - k0 + 16 * m + accum_row(0);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (accum_column(4 * n + i) > last + accum_half(i) * 8) s[m][n][i] = -INFINITY;
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < B::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = soften<kN>(s[m], half, scale, top[m][half], sum[m][half]);
#pragma unroll
        for (int d = 0; d < D / 8; ++d) {
          out[m][d][2 * half] *= factor;
          out[m][d][2 * half + 1] *= factor;
        }
      }
    }

    // Output.
    add_weighted_rows<D>(out, s, v_tiles + at, 0);
  }

#pragma unroll
  for (int m = 0; m < B::kRowTiles; ++m) {
    // Epilogue: lse, then normalise and store.
    const int row = first_query + 16 * m;
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = warp_sum(sum[m][half], kAccumLanes);
      const int t = row + accum_row(2 * half);
      inverse[half] = 1.0f / total;
      if (lane() % kAccumLanes == 0 && t < sequence) {
        a.lse.at(b, h, t) = (top[m][half] + log2f(total)) * kLn2;
      }
    }
    store_rows<D>(a.out.row(b * a.sequence + row) + h * D, heads * D, sequence - row,
                  q_tile + (warp_row + 16 * m) * D, out[m], inverse[0], inverse[1], a.amax.data);
  }
}

template <int D>
void launch_forward(Exec on, const AttentionForward<bf16>& a) {
  const int64_t blocks = ceil_div(a.sequence, Block<D>::kQueries);
  launch(on,
         {.name = "attention_forward",
          .grid = {unsigned(a.batch * a.heads), unsigned(blocks)},
          .block = {kThreads},
          .shared_bytes = Block<D>::kSharedBytes},
         attention_forward_kernel<D>, a);
}

}  // namespace

void attention_forward(Exec on, const AttentionForward<bf16>& a) {
  if (a.out.size() == 0) return;
  if (on.gpu->kind.products == Products::kWgmma && wgmma_pays(a)) {
    return attention_forward_wgmma(on, a);
  }
  if (a.head_dim == 32) return launch_forward<32>(on, a);
  if (a.head_dim == 64) return launch_forward<64>(on, a);
  launch_forward<128>(on, a);
}

}  // namespace assay::gpu
