#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_forward_wgmma.h"
#include "ops/attention/gpu_fragments.h"
#include "ops/attention/gpu_work_list.h"

namespace assay::gpu {

namespace {

using namespace attention;

constexpr int kGroup = 128;           // threads per warpgroup
constexpr int kThreads = 3 * kGroup;  // two math warpgroups and one for TMA
constexpr int kGroupQueries = 64, kQueries = 2 * kGroupQueries;
constexpr int kKeys = 128, kN = kKeys / 8;  // keys of a tile
constexpr int kStages = 2;
constexpr int kSpan = 64;  // elements of a row per 128-byte swizzle span
constexpr int kBoxRows = 64, kBox = kBoxRows * kSpan;  // box of one TMA load
constexpr int kReleases = 8;                           // math warps
static_assert(kQueries == kKeys, "one tile lies on the diagonal");

template <int D>
struct Block {
  static constexpr int kSpans = D / kSpan;
  static constexpr int kQ = kQueries * D, kTile = kKeys * D;
  static constexpr int kQStages = 2;
  static constexpr int kSharedBytes = (kQStages * kQ + 2 * kStages * kTile) * int(sizeof(bf16));
};

// Barriers. full: bytes have landed; empty: all math warps have read them.
struct Barriers {
  Mbarrier q_full[2], q_empty[2];
  Mbarrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

// Shared memory: stages of Q as [group][span][64 rows][64], then of K, then of V, each [span][128
// rows][64].
template <int D>
struct Tiles {
  using B = Block<D>;
  bf16* base;

  GPU_DEVICE bf16* q(int stage, int group) const {
    return base + stage * B::kQ + group * kGroupQueries * D;
  }
  GPU_DEVICE bf16* k(int stage) const { return base + B::kQStages * B::kQ + stage * B::kTile; }
  GPU_DEVICE bf16* v(int stage) const { return k(kStages + stage); }
};

// 128 queries of a head of a sequence.
struct Work {
  int b, h, kv, q0, tiles;
};
// Calls f(work, round, uses): `uses` counts the tiles of earlier works. The last queries, which see
// the most keys, come first.
template <typename F>
GPU_DEVICE void for_each_work(const AttentionForward<bf16>& a, const WorkList& list, F&& f) {
  int uses = 0;
  for_each_place(list, [&](const ListPlace& at, int round) {
    const int heads = int(a.heads), h = at.head % heads;
    const int q0 = (list.of_head - 1 - at.turn) * kQueries;
    const Work work{at.head / heads, h, h / (heads / int(a.kv_heads)), q0, q0 / kKeys + 1};
    f(work, round, uses);
    uses += work.tiles;
  });
}

// TMA thread: Q of a work, then K and V of one tile after another as stages become empty. It runs
// ahead: Q and the first keys of a work land while the one before it is stored.
template <int D>
GPU_DEVICE void copy_work(const AttentionForward<bf16>& a, const TensorMap* map, const Work& at,
                          int round, int uses, const Tiles<D>& tiles, Barriers& barriers) {
  using B = Block<D>;
  const int q_stage = round % B::kQStages;
  Mbarrier* const q_full = &barriers.q_full[q_stage];
  mbarrier_wait(&barriers.q_empty[q_stage], empty_phase(round, B::kQStages));
  mbarrier_arrive_expect(q_full, B::kQ * int(sizeof(bf16)));
  for (int group = 0; group < 2; ++group) {
    for (int span = 0; span < B::kSpans; ++span) {
      tma_load(tiles.q(q_stage, group) + span * kBox, map, q_full, at.h * D + span * kSpan,
               at.q0 + group * kGroupQueries, at.b);
    }
  }
  const auto copy_tile = [&](bf16* to, Mbarrier* full, int column, int row) {
    mbarrier_arrive_expect(full, B::kTile * int(sizeof(bf16)));
    for (int box = 0; box < B::kTile / kBox; ++box) {
      const int span = box / (kKeys / kBoxRows), part = box % (kKeys / kBoxRows);
      tma_load(to + box * kBox, map, full, column + span * kSpan, row + part * kBoxRows, at.b);
    }
  };
  const int k_column = (int(a.heads) + at.kv) * D, v_column = k_column + int(a.kv_heads) * D;
  for (int tile = 0; tile < at.tiles; ++tile) {
    const int use = uses + tile, stage = use % kStages;
    const uint32_t empty = empty_phase(use, kStages);
    mbarrier_wait(&barriers.k_empty[stage], empty);
    copy_tile(tiles.k(stage), &barriers.k_full[stage], k_column, tile * kKeys);
    mbarrier_wait(&barriers.v_empty[stage], empty);
    copy_tile(tiles.v(stage), &barriers.v_full[stage], v_column, tile * kKeys);
  }
}

// s = Q K^T of this warpgroup's 64 queries; both operands are K-major.
template <int D>
GPU_DEVICE void issue_scores(float (&s)[kKeys / 2], const bf16* q, const bf16* k) {
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    const int span = step / 4, within = step % 4 * 16;
    wgmma_m64k16<kKeys, Major::kK, Major::kK>(
        s, wgmma_descriptor(q + span * kBox + within, 16, 1024),
        wgmma_descriptor(k + span * (kKeys * kSpan) + within, 16, 1024), step > 0);
  }
  wgmma_commit();
}
// out += P V, P from registers, summed over the rows of V.
template <int D>
GPU_DEVICE void issue_output(float (&out)[D / 2], const uint32_t (&p)[kKeys / 16][4],
                             const bf16* v) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    wgmma_m64k16<D, Major::kMN>(
        out, p[step],
        wgmma_descriptor(v + step * 16 * kSpan, kKeys * kSpan * int(sizeof(bf16)), 1024), 1);
  }
  wgmma_commit();
}

// Masks the diagonal tile: keys later than the query, which include those past the sequence. `row`:
// the lane's upper row, relative to the tile's first key.
GPU_DEVICE void hide_later_keys(float (&s)[kKeys / 2], int row) {
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    if (accum_column(i) > row + accum_half(i) * 8) s[i] = -INFINITY;
  }
}
GPU_DEVICE void round_scores(uint32_t (&p)[kKeys / 16][4], const float (&s)[kKeys / 2]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}
GPU_DEVICE void release(Mbarrier* barrier) {
  if (lane() == 0) mbarrier_arrive(barrier);
}

// Named barriers. kRows: the warps of a group; kTurn: passed from group to group.
constexpr int kRowsBarrier = 1, kTurnBarrier = 3;
// A warpgroup issues its products in its turn only, so that those of one run under the exponentials
// of the other. Group 0 begins.
struct Turns {
  int group;

  GPU_DEVICE void begin() const {
    if (group == 1) pass();
  }
  GPU_DEVICE void wait() const { named_barrier_sync(kTurnBarrier + group, 2 * kGroup); }
  GPU_DEVICE void pass() const { named_barrier_arrive(kTurnBarrier + 1 - group, 2 * kGroup); }
  // Takes the turn that group 1 passed last, or a barrier would be left half full.
  GPU_DEVICE void end() const {
    if (group == 0) wait();
  }
};

// Math warpgroup: 64 queries of a work. Scores of a tile are computed while P V of the previous
// tile runs; the exponentials overlap with it, and with the products of the other warpgroup.
template <int D>
GPU_DEVICE void compute_work(const AttentionForward<bf16>& a, const Work& at, int round, int uses,
                             const Tiles<D>& tiles, Barriers& barriers, const Turns& turns) {
  using B = Block<D>;
  const int group = turns.group, q_stage = round % B::kQStages;
  const bf16* const q = tiles.q(q_stage, group);
  const int row = group * kGroupQueries + warp() % 4 * 16;  // the warp's first row in the block
  const int sequence = int(a.sequence), last = uses + at.tiles - 1;
  const float scale = kLog2E * inverse_root<D>();
  float s[kKeys / 2], out[D / 2], top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, factor[2];
  uint32_t p[kKeys / 16][4];
#pragma unroll
  for (float& x : out) x = 0;

  // First tile.
  mbarrier_wait(&barriers.q_full[q_stage], full_phase(round, B::kQStages));
  mbarrier_wait(&barriers.k_full[uses % kStages], full_phase(uses, kStages));
  wgmma_fence();
  issue_scores<D>(s, q, tiles.k(uses % kStages));
  wgmma_wait<0>();
  release(&barriers.k_empty[uses % kStages]);
  if (at.tiles == 1) hide_later_keys(s, row + accum_row(0));
  soften<kN>(s, 0, scale, top[0], sum[0]);
  soften<kN>(s, 1, scale, top[1], sum[1]);
  round_scores(p, s);

  // Main loop.
  for (int use = uses + 1; use <= last; ++use) {
    const int stage = use % kStages, before = (use - 1) % kStages;
    turns.wait();
    mbarrier_wait(&barriers.k_full[stage], full_phase(use, kStages));
    mbarrier_wait(&barriers.v_full[before], full_phase(use - 1, kStages));
    wgmma_fence();
    issue_scores<D>(s, q, tiles.k(stage));
    issue_output<D>(out, p, tiles.v(before));
    turns.pass();
    wgmma_wait<1>();
    release(&barriers.k_empty[stage]);
    if (use == last) hide_later_keys(s, row + accum_row(0));
    factor[0] = soften<kN>(s, 0, scale, top[0], sum[0]);
    factor[1] = soften<kN>(s, 1, scale, top[1], sum[1]);
    wgmma_wait<0>();
    release(&barriers.v_empty[before]);
    // Once a query's maximum is found its factors are 1.
    if (ballot(factor[0] != 1 || factor[1] != 1) != 0) {
#pragma unroll
      for (int i = 0; i < D / 2; ++i) out[i] *= factor[accum_half(i)];
    }
    round_scores(p, s);
  }

  // P V of the last tile.
  mbarrier_wait(&barriers.v_full[last % kStages], full_phase(last, kStages));
  wgmma_fence();
  issue_output<D>(out, p, tiles.v(last % kStages));
  wgmma_wait<0>();
  release(&barriers.v_empty[last % kStages]);

  // Epilogue: lse, then normalise and store.
  const int first = at.q0 + row;
  float inverse[2], rows[D / 8][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = warp_sum(sum[half], kAccumLanes);
    const int t = first + accum_row(2 * half);
    inverse[half] = 1.0f / total;
    if (lane() % kAccumLanes == 0 && t < sequence) {
      a.lse.at(at.b, at.h, t) = (top[half] + log2f(total)) * kLn2;
    }
  }
#pragma unroll
  for (int i = 0; i < D / 2; ++i) rows[i / 4][i % 4] = out[i];
  // The rows overwrite the group's Q; at D = 128 a warp overwrites what products of other warps
  // read.
  named_barrier_sync(kRowsBarrier + group, kGroup);
  store_rows<D>(a.out.row(at.b * a.sequence + first) + at.h * D, int(a.heads) * D, sequence - first,
                tiles.q(q_stage, group) + warp() % 4 * 16 * D, rows, inverse[0], inverse[1],
                a.amax.data);
  fence_proxy_async();  // the next Q overwrites these rows
  sync_warp();          // every lane has read them
  release(&barriers.q_empty[q_stage]);
}

// Each work is 128 queries of a head, 64 per math warpgroup; one thread of the third warpgroup
// issues the TMA loads. Tiles of 128 keys and values pass through two stages each and are read from
// L2 once per work. Bound by the tensor cores at D = 128; at D = 64 the exponentials (16 per clock
// and SM) take 5/6 of the time of the products and must overlap with them: the groups take turns.
// Of the diagonal tile, the first warpgroup computes 64 masked (wasted) keys.
template <int D>
__global__ __launch_bounds__(kThreads, 1) void attention_forward_wgmma_kernel(
    const __grid_constant__ AttentionForward<bf16> a, const __grid_constant__ TensorMap map,
    const __grid_constant__ WorkList list) {
  using B = Block<D>;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles<D> tiles{shared};

  // Barriers.
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < B::kQStages; ++stage) {
      mbarrier_init(&barriers.q_full[stage], 1);
      mbarrier_init(&barriers.q_empty[stage], kReleases);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&barriers.k_full[stage], 1);
      mbarrier_init(&barriers.v_full[stage], 1);
      mbarrier_init(&barriers.k_empty[stage], kReleases);
      mbarrier_init(&barriers.v_empty[stage], kReleases);
    }
    mbarrier_init_fence();
  }
  sync_block();

  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x != 2 * kGroup) return;
    for_each_work(a, list, [&](const Work& at, int round, int uses) {
      copy_work<D>(a, &map, at, round, uses, tiles, barriers);
    });
    return;
  }
  // Math warpgroups.
  set_registers_up<240>();
  const Turns turns{group};
  turns.begin();
  for_each_work(a, list, [&](const Work& at, int round, int uses) {
    compute_work<D>(a, at, round, uses, tiles, barriers, turns);
  });
  turns.end();
}

template <int D>
void launch_forward(Exec on, const AttentionForward<bf16>& a) {
  const int64_t columns = a.qkv.dim[1], row_bytes = columns * int64_t(sizeof(bf16));
  // Three dimensions, so that rows past a sequence are zero and not those of the next sequence.
  const TensorMap map = make_tensor_map({.name = "attention_forward qkv",
                                         .base = a.qkv.data,
                                         .rank = 3,
                                         .dim = {columns, a.sequence, a.batch},
                                         .stride_bytes = {row_bytes, a.sequence * row_bytes},
                                         .box = {kSpan, kBoxRows, 1},
                                         .swizzle = Swizzle::k128});
  // Keys and values of a query head.
  const int64_t streamed = 2 * a.sequence * D * int64_t(sizeof(bf16)) * a.kv_heads / a.heads;
  const int sms = int(on.gpu->multiprocessors);
  const WorkList list = work_list(a.batch * a.heads, ceil_div(a.sequence, kQueries), streamed, sms);
  launch(on,
         {.name = "attention_forward_wgmma",
          .grid = {blocks_of(list, sms)},
          .block = {kThreads},
          .shared_bytes = Block<D>::kSharedBytes},
         attention_forward_wgmma_kernel<D>, a, map, list);
}

}  // namespace

void attention_forward_wgmma(Exec on, const AttentionForward<bf16>& a) {
  if (a.head_dim == 64) return launch_forward<64>(on, a);
  launch_forward<128>(on, a);
}

}  // namespace assay::gpu
