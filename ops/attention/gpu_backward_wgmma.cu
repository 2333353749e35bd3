#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_backward_wgmma.h"
#include "ops/attention/gpu_fragments.h"
#include "ops/attention/gpu_work_list.h"

namespace assay::gpu {

namespace {

using namespace attention;

constexpr int kD = 64;
constexpr int kGroup = 128;           // threads per warpgroup
constexpr int kThreads = 3 * kGroup;  // two math warpgroups and one for TMA
// Rows of a TMA box: those owned by a warpgroup, and those of a streamed tile.
constexpr int kRows = 64;
constexpr int kOwned = 2 * kRows;  // rows owned by a block
constexpr int kStages = 4;
constexpr int kBox = kRows * kD, kBoxBytes = kBox * int(sizeof(bf16));
constexpr int kReleases = 8;  // math warps
constexpr int kSteps = kD / 16;
constexpr int kSums = kRows / 2;  // accumulators per thread of a 64 x 64 product

// lse in base 2 and delta = dout . out of a query; past the sequence infinity and 0, so that p = 0.
// Stored as (B, Hq, T rounded up to 64), alternating 64 lse and 64 delta.
struct Term {
  float lse, delta;
};
constexpr int kTermBytes = kRows * int(sizeof(Term));
GPU_DEVICE int64_t term_index(int64_t row) {
  return row / kRows * (2 * kRows) + row % kRows;
}

int64_t padded(int64_t sequence) {
  return round_up(sequence, kRows);
}

struct TermsArgs {
  AttentionBackward<bf16> a;
  int64_t padded;  // T rounded up to 64
};

constexpr int kTermThreads = 256, kTermLanes = kD / 8;

// Computes the terms. D / 8 threads share a row of a head, 8 elements each. Bound by memory: dout
// and out once.
__global__ __launch_bounds__(kTermThreads) void attention_terms_kernel(
    const __grid_constant__ TermsArgs w) {
  const AttentionBackward<bf16>& a = w.a;
  const int64_t row = (int64_t{blockIdx.x} * kTermThreads + threadIdx.x) / kTermLanes;
  const int64_t h = row % a.heads, t = row / a.heads % w.padded, b = row / a.heads / w.padded;
  const bool inside = b < a.batch && t < a.sequence;
  float sum = 0;
  if (inside) {
    const int64_t at = ((b * a.sequence + t) * a.heads + h) * kD + threadIdx.x % kTermLanes * 8;
    const auto x = load_vec<8>(a.dout.data + at), y = load_vec<8>(a.out.data + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += float(x[e]) * float(y[e]);
  }
  sum = warp_sum(sum, kTermLanes);
  if (b >= a.batch || threadIdx.x % kTermLanes != 0) return;
  float* const to = a.scratch.data + term_index((b * a.heads + h) * w.padded + t);
  to[0] = inside ? a.lse.at(b, h, t) * kLog2E : INFINITY;
  to[kRows] = sum;
}

// Stages of the owned rows: with a list, those of the next work land while the last one is stored.
template <Way kWay>
constexpr int owned_stages() {
  return kWay == Way::kList ? 2 : 1;
}

// Barriers. full: bytes have landed; empty: all math warps have read them.
struct Barriers {
  Mbarrier owned_full[2], owned_empty[2], full[kStages], empty[kStages];
};
GPU_DEVICE void start(Barriers& barriers) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      mbarrier_init(&barriers.owned_full[stage], 1);
      mbarrier_init(&barriers.owned_empty[stage], kReleases);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&barriers.full[stage], 1);
      mbarrier_init(&barriers.empty[stage], kReleases);
    }
    mbarrier_init_fence();
  }
  sync_block();
}
GPU_DEVICE void release(Mbarrier* barrier) {
  if (lane() == 0) mbarrier_arrive(barrier);
}

// Shared memory: two operands of the work's own rows, [stage][operand][group][64][64], then the
// stages of the two streamed operands, then the terms of the stages.
constexpr int kOperands = 2;
constexpr int kOwnedBoxes = kOperands * 2;
template <Way kWay>
struct Tiles {
  static constexpr int kOwned = owned_stages<kWay>() * kOwnedBoxes;
  static constexpr int kBoxes = kOwned + kStages * kOperands;
  static constexpr int kSharedBytes = kBoxes * kBoxBytes + kStages * kTermBytes;
  bf16* base;

  GPU_DEVICE bf16* owned(int stage, int operand, int group) const {
    return base + (stage * kOwnedBoxes + operand * 2 + group) * kBox;
  }
  GPU_DEVICE bf16* streamed(int stage, int operand) const {
    return base + (kOwned + stage * kOperands + operand) * kBox;
  }
  GPU_DEVICE float* terms(int stage) const {
    return reinterpret_cast<float*>(base + kBoxes * kBox) +
           stage * (kTermBytes / int(sizeof(float)));
  }
};

struct Maps {
  TensorMap qkv, dout;
};
// The first element of a box.
struct Corner {
  const TensorMap* map;
  int column, row, b;
};
GPU_DEVICE void load_box(bf16* to, const Corner& from, Mbarrier* barrier) {
  tma_load(to, from.map, barrier, from.column, from.row, from.b);
}
template <Way kWay>
GPU_DEVICE void load_owned(const Tiles<kWay>& tiles, Corner first, Corner second, int round,
                           Barriers& barriers) {
  constexpr int kCount = owned_stages<kWay>();
  const int stage = round % kCount;
  Mbarrier* const full = &barriers.owned_full[stage];
  mbarrier_wait(&barriers.owned_empty[stage], empty_phase(round, kCount));
  mbarrier_arrive_expect(full, kOwnedBoxes * kBoxBytes);
  for (int group = 0; group < 2; ++group) {
    load_box(tiles.owned(stage, 0, group), first, full);
    load_box(tiles.owned(stage, 1, group), second, full);
    first.row += kRows;
    second.row += kRows;
  }
}
// Waits until the owned rows of a round have landed, and returns their stage.
template <Way kWay>
GPU_DEVICE int await_owned(int round, Barriers& barriers) {
  constexpr int kCount = owned_stages<kWay>();
  mbarrier_wait(&barriers.owned_full[round % kCount], full_phase(round, kCount));
  return round % kCount;
}
// After a warp has stored its sums through its owned rows.
template <Way kWay>
GPU_DEVICE void release_owned(int stage, Barriers& barriers) {
  if constexpr (kWay == Way::kBlocks) return;
  fence_proxy_async();  // the rows of a later work overwrite these
  sync_warp();          // every lane has read them
  release(&barriers.owned_empty[stage]);
}
// Waits until stage `n % kStages` is free for its n-th use and announces its bytes.
GPU_DEVICE Mbarrier* begin_stage(Barriers& barriers, int n, int bytes) {
  const int stage = n % kStages;
  mbarrier_wait(&barriers.empty[stage], empty_phase(n, kStages));
  mbarrier_arrive_expect(&barriers.full[stage], bytes);
  return &barriers.full[stage];
}

// A warp's 16 of the 64 rows of its warpgroup, as the A operand of products over the head width.
using Fragments = uint32_t[kSteps][4];
GPU_DEVICE void load_fragments(Fragments& to, const bf16* tile) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load_a<kD>(to[step], tile, warp() % 4 * 16, step);
}

// s (64 x 64) = a . rows of the tile, summed over the head width.
GPU_DEVICE void issue_scores(float (&s)[kSums], const Fragments& a, const bf16* tile) {
  const uint64_t rows = wgmma_descriptor(tile, 16, 1024);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    wgmma_m64k16<kRows, Major::kK>(s, a[step], rows + uint64_t(step) * descriptor_step<Major::kK>(),
                                   step > 0);
  }
  wgmma_commit();
}
// sum (64 x D) += a . tile, summed over the tile's rows.
GPU_DEVICE void issue_sum(float (&sum)[kSums], const Fragments& a, const bf16* tile) {
  const uint64_t rows = wgmma_descriptor(tile, kBoxBytes, 1024);
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    wgmma_m64k16<kD, Major::kMN>(sum, a[step],
                                 rows + uint64_t(step) * descriptor_step<Major::kMN>(), 1);
  }
}
// The accumulators of a product become, lane by lane, the A operand of the next.
GPU_DEVICE void round_sums(Fragments& to, const float (&x)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums / 2; ++i) to[i / 4][i % 4] = pack_bf16(x[2 * i], x[2 * i + 1]);
}
GPU_DEVICE void clear(float (&x)[kSums]) {
#pragma unroll
  for (float& e : x) e = 0;
}
GPU_DEVICE void store_sums(bf16* first, int stride, int valid, bf16* tile, const float (&x)[kSums],
                           float factor, float* amax) {
  float rows[kD / 8][4];
#pragma unroll
  for (int i = 0; i < kSums; ++i) rows[i / 4][i % 4] = x[i];
  store_rows<kD>(first, stride, valid, tile + warp() % 4 * 16 * kD, rows, factor, factor, amax);
}

// --- Kernel for dk and dv. A work owns 128 keys; queries of all heads of the group stream by,
// from the first that sees its keys.

struct KeysPlace {
  int b, kv, k0, head, heads_end, tiles;  // tiles: of 64 queries, per head
};
// Calls f(place, round, uses): `uses` counts the tiles of earlier works. The first keys, which the
// most queries see, come first.
template <Way kWay, typename F>
GPU_DEVICE void for_each_keys(const AttentionBackward<bf16>& a, const WorkList& list, F&& f) {
  int uses = 0;
  for_each_place<kWay>(list, [&](const ListPlace& at, int round) {
    const int kv_heads = int(a.kv_heads), per = int(a.heads) / kv_heads;
    const int kv = at.head % kv_heads, k0 = at.turn * kOwned;
    const int tiles = ceil_div(int(a.sequence) - k0, kRows);
    f(KeysPlace{at.head / kv_heads, kv, k0, kv * per, (kv + 1) * per, tiles}, round, uses);
    uses += per * tiles;
  });
}

// TMA thread.
template <Way kWay>
GPU_DEVICE void copy_for_keys(const TermsArgs& w, const Maps& maps, const KeysPlace& at, int round,
                              int uses, const Tiles<kWay>& tiles, Barriers& barriers) {
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
template <Way kWay>
GPU_DEVICE void compute_keys(const AttentionBackward<bf16>& a, const KeysPlace& at, int round,
                             int uses, const Tiles<kWay>& tiles, Barriers& barriers, int group) {
  Fragments k_rows, v_rows, p_rows, ds_rows;
  float s[kSums], dp[kSums], dk[kSums], dv[kSums];
  clear(dk);
  clear(dv);
  const int owned = await_owned<kWay>(round, barriers);
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
  if constexpr (kWay == Way::kList) {
    sync_warp();
    release(&barriers.empty[(end - 1) % kStages]);
  }

  // Epilogue.
  const int first = at.k0 + row, stride = int(a.qkv.dim[1]), valid = int(a.sequence) - first;
  bf16* const to = a.dqkv.row(at.b * a.sequence + first) + (int(a.heads) + at.kv) * kD;
  turn_back<kD>(dk, a, first);
  store_sums(to, stride, valid, tiles.owned(owned, 0, group), dk, inverse_root<kD>(),
             a.dqk_amax.data);
  store_sums(to + a.kv_heads * kD, stride, valid, tiles.owned(owned, 1, group), dv, 1,
             a.dv_amax.data);
  release_owned<kWay>(owned, barriers);
}

// Bound by the tensor cores (four products of 64 x 64 x 64 per tile and warpgroup, 512 clocks). The
// exponentials of both warpgroups take half of that time and overlap with the other's products. For
// the first tile of a head, the second warpgroup does masked (wasted) work.
template <Way kWay>
__global__ __launch_bounds__(kThreads, 1) void attention_backward_keys_wgmma_kernel(
    const __grid_constant__ TermsArgs w, const __grid_constant__ Maps maps,
    const __grid_constant__ WorkList list) {
  const AttentionBackward<bf16>& a = w.a;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles<kWay> tiles{shared};

  // Barriers.
  start(barriers);
  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x != 2 * kGroup) return;
    for_each_keys<kWay>(a, list, [&](const KeysPlace& at, int round, int uses) {
      copy_for_keys<kWay>(w, maps, at, round, uses, tiles, barriers);
    });
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    for_each_keys<kWay>(a, list, [&](const KeysPlace& at, int round, int uses) {
      compute_keys<kWay>(a, at, round, uses, tiles, barriers, group);
    });
  }
}

// --- Kernel for dq. A work owns 128 queries of a head; keys and values up to the last query
// stream by.

struct QueriesPlace {
  int b, h, kv, q0, tiles;
};
// As for_each_keys. The last queries, which see the most keys, come first.
template <Way kWay, typename F>
GPU_DEVICE void for_each_queries(const AttentionBackward<bf16>& a, const WorkList& list, F&& f) {
  int uses = 0;
  for_each_place<kWay>(list, [&](const ListPlace& at, int round) {
    const int heads = int(a.heads), h = at.head % heads;
    const int q0 = (list.of_head - 1 - at.turn) * kOwned;
    const int tiles = ceil_div(smaller(q0 + kOwned, int(a.sequence)), kRows);
    f(QueriesPlace{at.head / heads, h, h / (heads / int(a.kv_heads)), q0, tiles}, round, uses);
    uses += tiles;
  });
}

// TMA thread.
template <Way kWay>
GPU_DEVICE void copy_for_queries(const AttentionBackward<bf16>& a, const Maps& maps,
                                 const QueriesPlace& at, int round, int uses,
                                 const Tiles<kWay>& tiles, Barriers& barriers) {
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
template <Way kWay>
GPU_DEVICE void compute_queries(const TermsArgs& w, const QueriesPlace& at, int round, int uses,
                                const Tiles<kWay>& tiles, Barriers& barriers, int group) {
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
  const int owned = await_owned<kWay>(round, barriers);
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
  if (kWay == Way::kList) release(&barriers.empty[stage_of(at.tiles - 1)]);

  // Epilogue.
  turn_back<kD>(dq, a, first);
  store_sums(a.dqkv.row(at.b * a.sequence + first) + at.h * kD, int(a.qkv.dim[1]),
             int(a.sequence) - first, tiles.owned(owned, 0, group), dq, inverse_root<kD>(),
             a.dqk_amax.data);
  release_owned<kWay>(owned, barriers);
}

// Same bound as the keys kernel, with three products instead of four: the exponentials take two
// thirds of their time. For the last tile, the first warpgroup does masked (wasted) work.
template <Way kWay>
__global__ __launch_bounds__(kThreads, 1) void attention_backward_queries_wgmma_kernel(
    const __grid_constant__ TermsArgs w, const __grid_constant__ Maps maps,
    const __grid_constant__ WorkList list) {
  const AttentionBackward<bf16>& a = w.a;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles<kWay> tiles{shared};

  // Barriers.
  start(barriers);
  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x != 2 * kGroup) return;
    for_each_queries<kWay>(a, list, [&](const QueriesPlace& at, int round, int uses) {
      copy_for_queries<kWay>(a, maps, at, round, uses, tiles, barriers);
    });
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    for_each_queries<kWay>(a, list, [&](const QueriesPlace& at, int round, int uses) {
      compute_queries<kWay>(w, at, round, uses, tiles, barriers, group);
    });
  }
}

// Three dimensions, so that rows past a sequence are zero and not those of the next sequence.
TensorMap rows_map(const char* name, const View<const bf16, 2>& x,
                   const AttentionBackward<bf16>& a) {
  const int64_t row_bytes = x.dim[1] * int64_t(sizeof(bf16));
  return make_tensor_map({.name = name,
                          .base = x.data,
                          .rank = 3,
                          .dim = {x.dim[1], a.sequence, a.batch},
                          .stride_bytes = {row_bytes, a.sequence * row_bytes},
                          .box = {kD, kRows, 1},
                          .swizzle = Swizzle::k128});
}

template <Way kWay>
void launch_backward(Exec on, const AttentionBackward<bf16>& a) {
  const TermsArgs w{a, padded(a.sequence)};
  const Maps maps{rows_map("attention_backward qkv", a.qkv, a),
                  rows_map("attention_backward dout", a.dout, a)};
  const int64_t threads = a.batch * w.padded * a.heads * kTermLanes;
  launch(on,
         {.name = "attention_terms",
          .grid = {unsigned(ceil_div(threads, kTermThreads))},
          .block = {kTermThreads}},
         attention_terms_kernel, w);

  // Streamed by a key-value head: q and dout of its query heads; by a query head: its k and v.
  const int64_t of_head = ceil_div(a.sequence, kOwned);
  const int64_t rows = 2 * a.sequence * kD * int64_t(sizeof(bf16)), per = a.heads / a.kv_heads;
  const int sms = int(on.gpu->multiprocessors);
  const WorkList keys = work_list<kWay>(a.batch * a.kv_heads, of_head, rows * per, sms);
  const WorkList queries = work_list<kWay>(a.batch * a.heads, of_head, rows / per, sms);
  launch(on,
         {.name = "attention_backward_keys_wgmma",
          .grid = {blocks_of<kWay>(keys, sms)},
          .block = {kThreads},
          .shared_bytes = Tiles<kWay>::kSharedBytes},
         attention_backward_keys_wgmma_kernel<kWay>, w, maps, keys);
  launch(on,
         {.name = "attention_backward_queries_wgmma",
          .grid = {blocks_of<kWay>(queries, sms)},
          .block = {kThreads},
          .shared_bytes = Tiles<kWay>::kSharedBytes},
         attention_backward_queries_wgmma_kernel<kWay>, w, maps, queries);
}

}  // namespace

void attention_backward_wgmma(Exec on, const AttentionBackward<bf16>& a) {
  if (on.gpu->predecessors.has(Predecessor::kAttentionBackwardBlocks)) {
    return launch_backward<Way::kBlocks>(on, a);
  }
  launch_backward<Way::kList>(on, a);
}

}  // namespace assay::gpu
