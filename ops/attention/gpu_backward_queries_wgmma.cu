// The kernel for dq of attention backward by wgmma. A work owns 128 queries of a head; keys and
// values up to the last query stream by.
#include "base/math.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_backward_tiles.h"

namespace assay::gpu::backward_wgmma {

namespace {

struct QueriesPlace {
  int b, h, kv, q0, tiles;
};
// As for_each_keys. The last queries, which see the most keys, come first.
template <typename F>
GPU_DEVICE void for_each_queries(const AttentionBackward<bf16>& a, const WorkList& list, F&& f) {
  int uses = 0;
  for_each_place(list, [&](const ListPlace& at, int round) {
    const int heads = int(a.heads), h = at.head % heads;
    const int q0 = (list.of_head - 1 - at.turn) * kOwned;
    const int tiles = ceil_div(smaller(q0 + kOwned, int(a.sequence)), kRows);
    f(QueriesPlace{at.head / heads, h, h / (heads / int(a.kv_heads)), q0, tiles}, round, uses);
    uses += tiles;
  });
}

// TMA thread.
GPU_DEVICE void copy_for_queries(const AttentionBackward<bf16>& a, const Maps& maps,
                                 const QueriesPlace& at, int round, int uses, const Tiles& tiles,
                                 Barriers& barriers) {
  load_owned(tiles, {&maps.qkv, at.h * kD, at.q0, at.b}, {&maps.dout, at.h * kD, at.q0, at.b},
             round, barriers);
  const int k_column = (int(a.heads) + at.kv) * kD;
  for (int tile = 0; tile < at.tiles; ++tile) {
    const int stage = (uses + tile) % kStages, k0 = tile * kRows;
    Mbarrier* const full = begin_stage(barriers, uses + tile, kOperands * kBoxBytes);
    load_box(tiles.streamed(stage, 0), {&maps.qkv, k_column, k0, at.b}, full);
    load_box(tiles.streamed(stage, 1), {&maps.qkv, k_column + int(a.kv_heads) * kD, k0, at.b},
             full);
  }
}

// p of the warp's 16 queries and 64 keys. `row`: the warp's first query, relative to the first key.
GPU_DEVICE void weigh_queries(float (&s)[kSums], const Term (&term)[2], int row) {
  constexpr float kScale = kLog2E * inverse_root<kD>();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    s[i] = exp2_approx(fmaf(s[i], kScale, -term[accum_half(i)].lse));
  }
  if (row >= kRows - 1) return;  // all queries see every key
  sync_warp();                   // keeps the compiler from always executing the mask
  const int upper = row + accum_row(0);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    if (accum_column(i) > upper + accum_half(i) * 8) s[i] = 0;
  }
}

// Math warpgroup: 64 queries.
GPU_DEVICE void compute_queries(const TermsArgs& w, const QueriesPlace& at, int round, int uses,
                                const Tiles& tiles, Barriers& barriers, int group) {
  const AttentionBackward<bf16>& a = w.a;
  Fragments q_rows, dout_rows, ds_rows;
  float s[kSums], dp[kSums], dq[kSums];
  clear(dq);
  const int row = group * kRows + warp() % 4 * 16, first = at.q0 + row;
  Term term[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t t = first + accum_row(2 * half);
    const float* const from =
        a.scratch.data + term_index((int64_t{at.b} * a.heads + at.h) * w.padded + t);
    term[half] = t < w.padded ? Term{from[0], from[kRows]} : Term{INFINITY, 0};
  }
  const int owned = await_owned(round, barriers);
  load_fragments(q_rows, tiles.owned(owned, 0, group));
  load_fragments(dout_rows, tiles.owned(owned, 1, group));

  const auto weigh = [&](int tile) { weigh_queries(s, term, first - tile * kRows); };
  const auto differentiate = [&] {
#pragma unroll
    for (int i = 0; i < kSums; ++i) dp[i] = s[i] * (dp[i] - term[accum_half(i)].delta);
  };
  const auto stage_of = [&](int tile) { return (uses + tile) % kStages; };
  const auto issue_products = [&](int tile) {
    mbarrier_wait(&barriers.full[stage_of(tile)], full_phase(uses + tile, kStages));
    wgmma_fence();
    issue_scores(s, q_rows, tiles.streamed(stage_of(tile), 0));
    issue_scores(dp, dout_rows, tiles.streamed(stage_of(tile), 1));
  };
  const auto issue_sums = [&](int tile) {
    issue_sum(dq, ds_rows, tiles.streamed(stage_of(tile), 0));
    wgmma_commit();
  };

  // First tile.
  issue_products(0);
  wgmma_wait<0>();
  weigh(0);
  differentiate();
  round_sums(ds_rows, dp);

  // Main loop.
  for (int tile = 1; tile < at.tiles; ++tile) {
    issue_products(tile);
    issue_sums(tile - 1);
    wgmma_wait<2>();
    weigh(tile);
    wgmma_wait<1>();
    differentiate();
    wgmma_wait<0>();
    release(&barriers.empty[stage_of(tile - 1)]);
    round_sums(ds_rows, dp);
  }

  // Sums of the last tile.
  wgmma_fence();
  issue_sums(at.tiles - 1);
  wgmma_wait<0>();
  release(&barriers.empty[stage_of(at.tiles - 1)]);

  // Epilogue.
  turn_back<kD>(dq, a, first);
  store_sums(a.dqkv.row(at.b * a.sequence + first) + at.h * kD, int(a.qkv.dim[1]),
             int(a.sequence) - first, tiles.owned(owned, 0, group), dq, inverse_root<kD>(),
             a.dqk_amax.data);
  release_owned(owned, barriers);
}

// Same bound as the keys kernel, with three products instead of four: the exponentials take two
// thirds of their time. For the last tile, the first warpgroup does masked (wasted) work.
__global__ __launch_bounds__(kThreads, 1) void attention_backward_queries_wgmma_kernel(
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
    for_each_queries(a, list, [&](const QueriesPlace& at, int round, int uses) {
      copy_for_queries(a, maps, at, round, uses, tiles, barriers);
    });
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    for_each_queries(a, list, [&](const QueriesPlace& at, int round, int uses) {
      compute_queries(w, at, round, uses, tiles, barriers, group);
    });
  }
}

}  // namespace

void launch_queries(Exec on, const TermsArgs& w, const Maps& maps) {
  const AttentionBackward<bf16>& a = w.a;
  // Streamed by a query head: k and v of its key-value head, which other query heads share.
  const int64_t bytes = 2 * a.sequence * kD * int64_t(sizeof(bf16)) / (a.heads / a.kv_heads);
  const int sms = int(on.gpu->multiprocessors);
  const WorkList list = work_list(a.batch * a.heads, ceil_div(a.sequence, kOwned), bytes, sms);
  launch(on,
         {.name = "attention_backward_queries_wgmma",
          .grid = {blocks_of(list, sms)},
          .block = {kThreads},
          .shared_bytes = Tiles::kSharedBytes},
         attention_backward_queries_wgmma_kernel, w, maps, list);
}

}  // namespace assay::gpu::backward_wgmma
