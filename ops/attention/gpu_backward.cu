// Attention backward in bf16 by mma.sync, deterministic without atomics: one kernel owns dk and dv
// of a block of keys, another dq of a block of queries. Both compute p and ds, so there are seven
// products instead of five.
#include <type_traits>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention.h"
#include "ops/attention/gpu_backward_wgmma.h"
#include "ops/attention/gpu_delta.h"
#include "ops/attention/gpu_fragments.h"

namespace assay::gpu {

namespace {

using namespace attention;

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kOwned = kWarps * 16;  // rows owned by a block: 16 per warp

template <int D>
struct Block {
  static constexpr int kRows = D == 128 ? 32 : 64;  // rows of a streamed tile
  static constexpr int kTile = kRows * D;
  // Part of a tile processed at once: scores of 16 x kPart per warp, for the keys kernel and for
  // the queries kernel.
  static constexpr int kKeysPart = D == 32 ? 32 : 16, kQueriesPart = 32;
  static constexpr int kResident = D == 128 ? 2 : 3;  // blocks per SM, limited by registers
  // The warp's own two fragments of 16 rows. At D = 128, together with the sums of dk and dv, they
  // exceed 255 registers.
  using Held = HeldRows<D, 1>;
  using HeldKeys = std::conditional_t<D == 128, TileRows<D>, HeldRows<D, 1>>;
  static constexpr int kSharedBytes = (2 * kOwned + 4 * kRows) * D * int(sizeof(bf16));
};

// dp becomes ds = p (dp - delta); the factor 1 / sqrt(D) is applied to the sums at the end.
GPU_DEVICE void differentiate(float& dp, float p, float delta) {
  dp = p * (dp - delta);
}

// Each block owns dk and dv of 64 keys of a key-value head, each warp those of 16, in registers.
// Queries of all heads of the group stream in tiles through two stages of shared memory, head after
// head, starting at the first query that sees the keys. Rows of the products are keys: the
// accumulators of p and ds are directly operands of the sums. Each tile of q and dout is read from
// L2 once per block. Bound by mma.sync and by shared memory (16 rows per warp: 512 bytes for two
// products). The first keys, seen by the most queries, start first.
template <int D>
__global__ __launch_bounds__(kThreads, Block<D>::kResident) void attention_backward_keys_kernel(
    const __grid_constant__ AttentionBackward<bf16> a) {
  using B = Block<D>;
  constexpr int kPart = B::kKeysPart, kN = kPart / 8;
  GPU_DYNAMIC_SHARED(bf16, shared);
  // lse in base 2; infinite past the end, so that p = 0.
  GPU_SHARED(float, lse_rows, [2][B::kRows]);
  GPU_SHARED(float, delta_rows, [2][B::kRows]);
  bf16* const k_tile = shared;
  bf16* const v_tile = k_tile + kOwned * D;
  bf16* const q_tiles = v_tile + kOwned * D;
  bf16* const dout_tiles = q_tiles + 2 * B::kTile;

  const int heads = int(a.heads), kv_heads = int(a.kv_heads), sequence = int(a.sequence);
  const int b = int(blockIdx.x) / kv_heads, kv = int(blockIdx.x) % kv_heads;
  const int k0 = int(blockIdx.y) * kOwned, stride = int(a.qkv.dim[1]);
  const int k_column = (heads + kv) * D, v_column = k_column + kv_heads * D;
  const bf16* const rows = a.qkv.row(b * a.sequence);
  const bf16* const douts = a.dout.row(b * a.sequence);

  // The next tile to load: head h, queries from q0 on.
  int h = kv * (heads / kv_heads), q0 = k0;
  const int end = h + heads / kv_heads;
  const auto copy_tile = [&](int stage) {
    const int at = stage * B::kTile;
    copy_rows<D, B::kRows, kThreads>(q_tiles + at, rows + (int64_t{q0} * stride + h * D), stride,
                                     sequence - q0);
    copy_rows<D, B::kRows, kThreads>(dout_tiles + at, douts + (int64_t{q0} * heads + h) * D,
                                     heads * D, sequence - q0);
    cp_async_commit();
  };
  const auto advance = [&] {
    q0 += B::kRows;
    if (q0 >= sequence) {
      q0 = k0;
      ++h;
    }
  };
  struct TermsArgs {
    float lse, delta;
  };
  const int row = int(threadIdx.x);  // row whose lse and delta this thread loads
  const auto read_terms = [&] {
    const int t = q0 + row;
    if (row >= B::kRows || t >= sequence) return TermsArgs{INFINITY, 0};
    const int64_t at = (int64_t{b} * heads + h) * sequence + t;
    return TermsArgs{a.lse[at] * kLog2E, a.scratch[at]};
  };
  const auto store_terms = [&](int stage, const TermsArgs& terms) {
    if (row >= B::kRows) return;
    lse_rows[stage][row] = terms.lse;
    delta_rows[stage][row] = terms.delta;
  };

  // Prologue: own keys and values, first tile.
  copy_rows<D, kOwned, kThreads>(k_tile, rows + (int64_t{k0} * stride + k_column), stride,
                                 sequence - k0);
  copy_rows<D, kOwned, kThreads>(v_tile, rows + (int64_t{k0} * stride + v_column), stride,
                                 sequence - k0);
  copy_tile(0);
  store_terms(0, read_terms());

  // Own rows and accumulators.
  const int warp_row = warp() * 16;
  typename B::HeldKeys k_rows, v_rows;
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  const float scale = kLog2E * inverse_root<D>();
  bool loaded = false;

  // Main loop.
  for (int stage = 0; h < end; stage ^= 1) {
    cp_async_wait<0>();
    sync_block();  // this tile has landed, and the other stage is free
    // The lane's upper key, relative to the tile's first query.
    const int key = k0 - q0 + warp_row + accum_row(0);
    advance();
    TermsArgs next = {};
    if (h < end) {
      copy_tile(stage ^ 1);
      next = read_terms();
    }
    if (!loaded) {
      k_rows.start(k_tile, warp_row);
      v_rows.start(v_tile, warp_row);
      loaded = true;
    }
    const bf16* const q = q_tiles + stage * B::kTile;
    const bf16* const dout = dout_tiles + stage * B::kTile;
#pragma unroll 1
    for (int part = 0; part < B::kRows; part += kPart) {
      if (part + kPart <= key - accum_row(0)) continue;  // all queries precede the keys of the warp
      float p[1][kN][4], ds[1][kN][4];
      multiply_rows<D>(p, k_rows, q, part);
      multiply_rows<D>(ds, v_rows, dout, part);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int column = part + accum_column(4 * n);
        const auto lse = load_vec<2>(&lse_rows[stage][column]);
        const auto delta = load_vec<2>(&delta_rows[stage][column]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& x = p[0][n][i];
          x = exp2_approx(fmaf(x, scale, -lse[i % 2]));
          if (column + i % 2 < key + accum_half(i) * 8) x = 0;
          differentiate(ds[0][n][i], x, delta[i % 2]);
        }
      }
      add_weighted_rows<D>(dv, p, dout, part);
      add_weighted_rows<D>(dk, ds, q, part);
    }
    if (h < end) store_terms(stage ^ 1, next);
  }

  // Epilogue.
  const int first = k0 + warp_row;
  bf16* const to = a.dqkv.row(b * a.sequence + first);
  turn_back<D>(dk[0], a, first);
  store_rows<D>(to + k_column, stride, sequence - first, k_tile + warp_row * D, dk[0],
                inverse_root<D>(), inverse_root<D>(), a.dqk_amax.data);
  store_rows<D>(to + v_column, stride, sequence - first, v_tile + warp_row * D, dv[0], 1, 1,
                a.dv_amax.data);
}

// Each block owns dq of 64 queries of a head, each warp that of 16, in registers. Tiles of keys and
// values up to the last query stream through two stages of shared memory. Same bound as the keys
// kernel, with three products instead of four. The last queries, which see the most keys, start
// first.
template <int D>
__global__ __launch_bounds__(kThreads, Block<D>::kResident) void attention_backward_queries_kernel(
    const __grid_constant__ AttentionBackward<bf16> a) {
  using B = Block<D>;
  constexpr int kPart = B::kQueriesPart, kN = kPart / 8;
  GPU_DYNAMIC_SHARED(bf16, shared);
  bf16* const q_tile = shared;
  bf16* const dout_tile = q_tile + kOwned * D;
  bf16* const k_tiles = dout_tile + kOwned * D;
  bf16* const v_tiles = k_tiles + 2 * B::kTile;

  const int heads = int(a.heads), sequence = int(a.sequence), stride = int(a.qkv.dim[1]);
  const int b = int(blockIdx.x) / heads, h = int(blockIdx.x) % heads;
  const int kv = h / (heads / int(a.kv_heads));
  const int q0 = int(gridDim.y - 1 - blockIdx.y) * kOwned;
  const bf16* const rows = a.qkv.row(b * a.sequence);
  const bf16* const k = rows + (heads + kv) * D;
  const int64_t v_from_k = a.kv_heads * D;
  const int tiles = ceil_div(smaller(q0 + kOwned, sequence), B::kRows);
  const auto copy_tile = [&](int tile) {
    const int k0 = tile * B::kRows, at = tile % 2 * B::kTile;
    const bf16* const from = k + int64_t{k0} * stride;
    copy_rows<D, B::kRows, kThreads>(k_tiles + at, from, stride, sequence - k0);
    copy_rows<D, B::kRows, kThreads>(v_tiles + at, from + v_from_k, stride, sequence - k0);
    cp_async_commit();
  };

  // Prologue: own queries, first tile.
  copy_rows<D, kOwned, kThreads>(q_tile, rows + (int64_t{q0} * stride + h * D), stride,
                                 sequence - q0);
  copy_rows<D, kOwned, kThreads>(dout_tile, a.dout.row(b * a.sequence + q0) + h * D, heads * D,
                                 sequence - q0);
  copy_tile(0);

  // Own rows, their lse and delta, accumulators.
  const int warp_row = warp() * 16;
  const int first = q0 + warp_row;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = first + accum_row(2 * half);
    const int64_t at = (int64_t{b} * heads + h) * sequence + t;
    lse[half] = t < sequence ? a.lse[at] * kLog2E : INFINITY;
    delta[half] = t < sequence ? a.scratch[at] : 0;
  }
  typename B::Held q_rows, dout_rows;
  float dq[1][D / 8][4] = {};
  const float scale = kLog2E * inverse_root<D>();

  // Main loop.
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<0>();
    sync_block();  // this tile has landed, and the other stage is free
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (tile == 0) {
      q_rows.start(q_tile, warp_row);
      dout_rows.start(dout_tile, warp_row);
    }
    const bf16* const k_now = k_tiles + tile % 2 * B::kTile;
    const bf16* const v_now = v_tiles + tile % 2 * B::kTile;
    // The last key, relative to the tile's first, that the lane's upper row sees. This also masks
    // keys past the end.
    const int last = first - tile * B::kRows + accum_row(0);
#pragma unroll 1
    for (int part = 0; part < B::kRows; part += kPart) {
      if (part >= last - accum_row(0) + 16) continue;  // all keys are later than the warp's queries
      float p[1][kN][4], ds[1][kN][4];
      multiply_rows<D>(p, q_rows, k_now, part);
      multiply_rows<D>(ds, dout_rows, v_now, part);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int column = part + accum_column(4 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float x = exp2_approx(fmaf(p[0][n][i], scale, -lse[accum_half(i)]));
          if (column + i % 2 > last + accum_half(i) * 8) x = 0;
          differentiate(ds[0][n][i], x, delta[accum_half(i)]);
        }
      }
      add_weighted_rows<D>(dq, ds, k_now, part);
    }
  }

  // Epilogue.
  turn_back<D>(dq[0], a, first);
  store_rows<D>(a.dqkv.row(b * a.sequence + first) + h * D, stride, sequence - first,
                q_tile + warp_row * D, dq[0], inverse_root<D>(), inverse_root<D>(),
                a.dqk_amax.data);
}

template <int D>
void launch_backward(Exec on, const AttentionBackward<bf16>& a) {
  const unsigned blocks = unsigned(ceil_div(a.sequence, kOwned));
  launch_attention_delta(on, a);
  launch(on,
         {.name = "attention_backward_keys",
          .grid = {unsigned(a.batch * a.kv_heads), blocks},
          .block = {kThreads},
          .shared_bytes = Block<D>::kSharedBytes},
         attention_backward_keys_kernel<D>, a);
  launch(on,
         {.name = "attention_backward_queries",
          .grid = {unsigned(a.batch * a.heads), blocks},
          .block = {kThreads},
          .shared_bytes = Block<D>::kSharedBytes},
         attention_backward_queries_kernel<D>, a);
}

}  // namespace

void attention_backward(Exec on, const AttentionBackward<bf16>& a) {
  if (a.dqkv.size() == 0) return;
  if (on.gpu->kind.products == Products::kWgmma && wgmma_pays(a)) {
    return attention_backward_wgmma(on, a);
  }
  if (a.head_dim == 32) return launch_backward<32>(on, a);
  if (a.head_dim == 64) return launch_backward<64>(on, a);
  launch_backward<128>(on, a);
}

}  // namespace assay::gpu
