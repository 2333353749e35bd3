// The kernel for dk and dv of attention backward by wgmma. A work owns 128 keys; queries of all
// heads of the group stream by, from the first that sees its keys.
#include "base/math.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_backward_tiles.h"

namespace assay::gpu::backward_wgmma {

namespace {

struct KeysPlace {
  int b, kv, k0, head, heads_end, tiles;  // tiles: of 64 queries, per head
};
// Calls f(place, round, uses): `uses` counts the tiles of earlier works. The first keys, which the
// most queries see, come first.
template <typename F>
GPU_DEVICE void for_each_keys(const AttentionBackward<bf16>& a, const WorkList& list, F&& f) {
  int uses = 0;
  for_each_place(list, [&](const ListPlace& at, int round) {
    const int kv_heads = int(a.kv_heads), per = int(a.heads) / kv_heads;
    const int kv = at.head % kv_heads, k0 = at.turn * kOwned;
    const int tiles = ceil_div(int(a.sequence) - k0, kRows);
    f(KeysPlace{at.head / kv_heads, kv, k0, kv * per, (kv + 1) * per, tiles}, round, uses);
    uses += per * tiles;
  });
}

// TMA thread.
GPU_DEVICE void copy_for_keys(const TermsArgs& w, const Maps& maps, const KeysPlace& at, int round,
                              int uses, const Tiles& tiles, Barriers& barriers) {
  const AttentionBackward<bf16>& a = w.a;
  const int k_column = (int(a.heads) + at.kv) * kD;
  load_owned(tiles, {&maps.qkv, k_column, at.k0, at.b},
             {&maps.qkv, k_column + int(a.kv_heads) * kD, at.k0, at.b}, round, barriers);
  int n = uses;
  for (int h = at.head; h < at.heads_end; ++h) {
    for (int tile = 0; tile < at.tiles; ++tile, ++n) {
      const int stage = n % kStages, q0 = at.k0 + tile * kRows;
      Mbarrier* const full = begin_stage(barriers, n, kOperands * kBoxBytes + kTermBytes);
      load_box(tiles.streamed(stage, 0), {&maps.qkv, h * kD, q0, at.b}, full);
      load_box(tiles.streamed(stage, 1), {&maps.dout, h * kD, q0, at.b}, full);
      bulk_load(tiles.terms(stage),
                a.scratch.data + ((int64_t{at.b} * a.heads + h) * w.padded + q0) * 2, kTermBytes,
                full);
    }
  }
}

// p of the warp's 16 keys and 64 queries from their scores. `key`: the warp's first key, relative
// to the first query.
GPU_DEVICE void weigh_keys(float (&s)[kSums], const float* terms, int key) {
  constexpr float kScale = kLog2E * inverse_root<kD>();
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const auto lse = load_vec<2>(terms + accum_column(4 * n));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[4 * n + i] = exp2_approx(fmaf(s[4 * n + i], kScale, -lse[i % 2]));
    }
  }
  if (key + 15 <= 0) return;  // every query sees all keys
  sync_warp();                // keeps the compiler from always executing the mask
  const int upper = key + accum_row(0);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    if (accum_column(i) < upper + accum_half(i) * 8) s[i] = 0;
  }
}
GPU_DEVICE void differentiate_keys(float (&dp)[kSums], const float (&p)[kSums],
                                   const float* terms) {
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const auto delta = load_vec<2>(terms + kRows + accum_column(4 * n));
#pragma unroll
    for (int i = 0; i < 4; ++i) dp[4 * n + i] = p[4 * n + i] * (dp[4 * n + i] - delta[i % 2]);
  }
}

// Math warpgroup: 64 keys. Rows of the products are keys: the accumulators of p and ds are directly
// operands of the sums. The sums of a tile run while the scores of the next tile are computed.
GPU_DEVICE void compute_keys(const AttentionBackward<bf16>& a, const KeysPlace& at, int round,
                             int uses, const Tiles& tiles, Barriers& barriers, int group) {
  Fragments k_rows, v_rows, p_rows, ds_rows;
  float s[kSums], dp[kSums], dk[kSums], dv[kSums];
  clear(dk);
  clear(dv);
  const int owned = await_owned(round, barriers);
  load_fragments(k_rows, tiles.owned(owned, 0, group));
  load_fragments(v_rows, tiles.owned(owned, 1, group));

  const int row = group * kRows + warp() % 4 * 16;  // the warp's first row in the block
  const int end = uses + (at.heads_end - at.head) * at.tiles;
  int key = row;  // relative to the first query of the tile that is weighted
  const auto weigh = [&](int n) {
    weigh_keys(s, tiles.terms(n % kStages), key);
    key -= kRows;
    if (key == row - at.tiles * kRows) key = row;  // first tile of the next head
  };
  const auto differentiate = [&](int n) { differentiate_keys(dp, s, tiles.terms(n % kStages)); };
  const auto issue_products = [&](int n) {
    mbarrier_wait(&barriers.full[n % kStages], full_phase(n, kStages));
    wgmma_fence();
    issue_scores(s, k_rows, tiles.streamed(n % kStages, 0));
    issue_scores(dp, v_rows, tiles.streamed(n % kStages, 1));
  };
  const auto issue_sums = [&](int n) {
    issue_sum(dv, p_rows, tiles.streamed(n % kStages, 1));
    issue_sum(dk, ds_rows, tiles.streamed(n % kStages, 0));
    wgmma_commit();
  };

  // First tile.
  issue_products(uses);
  wgmma_wait<0>();
  weigh(uses);
  differentiate(uses);
  round_sums(p_rows, s);
  round_sums(ds_rows, dp);

  // Main loop.
  for (int n = uses + 1; n < end; ++n) {
    issue_products(n);
    issue_sums(n - 1);
    wgmma_wait<2>();
    weigh(n);
    wgmma_wait<1>();
    differentiate(n);
    wgmma_wait<0>();
    sync_warp();  // every lane has read the terms before lane 0 releases the stage
    release(&barriers.empty[(n - 1) % kStages]);
    round_sums(p_rows, s);
    round_sums(ds_rows, dp);
  }

  // Sums of the last tile.
  wgmma_fence();
  issue_sums(end - 1);
  wgmma_wait<0>();
  sync_warp();
  release(&barriers.empty[(end - 1) % kStages]);

  // Epilogue.
  const int first = at.k0 + row, stride = int(a.qkv.dim[1]), valid = int(a.sequence) - first;
  bf16* const to = a.dqkv.row(at.b * a.sequence + first) + (int(a.heads) + at.kv) * kD;
  turn_back<kD>(dk, a, first);
  store_sums(to, stride, valid, tiles.owned(owned, 0, group), dk, inverse_root<kD>(),
             a.dqk_amax.data);
  store_sums(to + a.kv_heads * kD, stride, valid, tiles.owned(owned, 1, group), dv, 1,
             a.dv_amax.data);
  release_owned(owned, barriers);
}

// Bound by the tensor cores (four products of 64 x 64 x 64 per tile and warpgroup, 512 clocks). The
// exponentials of both warpgroups take half of that time and overlap with the other's products. For
// the first tile of a head, the second warpgroup does masked (wasted) work.
__global__ __launch_bounds__(kThreads, 1) void attention_backward_keys_wgmma_kernel(
    const __grid_constant__ TermsArgs w, const __grid_constant__ Maps maps,
    const __grid_constant__ WorkList list) {
  const AttentionBackward<bf16>& a = w.a;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles tiles{shared};

  // Barriers.
  start(barriers);
  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x != 2 * kGroup) return;
    for_each_keys(a, list, [&](const KeysPlace& at, int round, int uses) {
      copy_for_keys(w, maps, at, round, uses, tiles, barriers);
    });
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    for_each_keys(a, list, [&](const KeysPlace& at, int round, int uses) {
      compute_keys(a, at, round, uses, tiles, barriers, group);
    });
  }
}

}  // namespace

void launch_keys(Exec on, const TermsArgs& w, const Maps& maps) {
  const AttentionBackward<bf16>& a = w.a;
  // Streamed by a key-value head: q and dout of its query heads.
  const int64_t bytes = 2 * a.sequence * kD * int64_t(sizeof(bf16)) * (a.heads / a.kv_heads);
  const int sms = int(on.gpu->multiprocessors);
  const WorkList list = work_list(a.batch * a.kv_heads, ceil_div(a.sequence, kOwned), bytes, sms);
  launch(on,
         {.name = "attention_backward_keys_wgmma",
          .grid = {blocks_of(list, sms)},
          .block = {kThreads},
          .shared_bytes = Tiles::kSharedBytes},
         attention_backward_keys_wgmma_kernel, w, maps, list);
}

}  // namespace assay::gpu::backward_wgmma
