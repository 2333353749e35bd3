#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_backward_wgmma.h"
#include "ops/attention/gpu_fragments.h"

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

// Barriers. full: bytes have landed; empty: all math warps have read them.
struct Barriers {
  Mbarrier owned, full[kStages], empty[kStages];
};
GPU_DEVICE void start(Barriers& barriers) {
  if (threadIdx.x == 0) {
    mbarrier_init(&barriers.owned, 1);
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

// Shared memory: two operands of the block's own rows, [operand][group][64][64], then the stages of
// the two streamed operands, then the terms of the stages.
constexpr int kOperands = 2;
constexpr int kOwnedBoxes = kOperands * 2;
constexpr int kSharedBytes = (kOwnedBoxes + kStages * kOperands) * kBoxBytes + kStages * kTermBytes;
struct Tiles {
  bf16* base;

  GPU_DEVICE bf16* owned(int operand, int group) const {
    return base + (operand * 2 + group) * kBox;
  }
  GPU_DEVICE bf16* streamed(int stage, int operand) const {
    return base + (kOwnedBoxes + stage * kOperands + operand) * kBox;
  }
  GPU_DEVICE float* terms(int stage) const {
    return reinterpret_cast<float*>(base + (kOwnedBoxes + kStages * kOperands) * kBox) +
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
GPU_DEVICE void load_owned(const Tiles& tiles, Corner first, Corner second, Barriers& barriers) {
  mbarrier_arrive_expect(&barriers.owned, kOwnedBoxes * kBoxBytes);
  for (int group = 0; group < 2; ++group) {
    load_box(tiles.owned(0, group), first, &barriers.owned);
    load_box(tiles.owned(1, group), second, &barriers.owned);
    first.row += kRows;
    second.row += kRows;
  }
}
// Waits until stage `n % kStages` is free for its n-th use and announces its bytes.
GPU_DEVICE Mbarrier* begin_stage(Barriers& barriers, int n, int bytes) {
  const int stage = n % kStages;
  // The first use does not wait.
  mbarrier_wait(&barriers.empty[stage], uint32_t(n / kStages + 1) & 1);
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

// --- Kernel for dk and dv. A block owns 128 keys; queries of all heads of the group stream by,
// from the first that sees its keys.

struct KeysPlace {
  int b, kv, k0, head, heads_end, tiles;  // tiles: of 64 queries, per head
};

// TMA thread.
GPU_DEVICE void copy_for_keys(const TermsArgs& w, const Maps& maps, const KeysPlace& at,
                              const Tiles& tiles, Barriers& barriers) {
  const AttentionBackward<bf16>& a = w.a;
  const int k_column = (int(a.heads) + at.kv) * kD;
  load_owned(tiles, {&maps.qkv, k_column, at.k0, at.b},
             {&maps.qkv, k_column + int(a.kv_heads) * kD, at.k0, at.b}, barriers);
  int n = 0;
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
GPU_DEVICE void compute_keys(const AttentionBackward<bf16>& a, const KeysPlace& at,
                             const Tiles& tiles, Barriers& barriers, int group) {
  Fragments k_rows, v_rows, p_rows, ds_rows;
  float s[kSums], dp[kSums], dk[kSums], dv[kSums];
  clear(dk);
  clear(dv);
  mbarrier_wait(&barriers.owned, 0);
  load_fragments(k_rows, tiles.owned(0, group));
  load_fragments(v_rows, tiles.owned(1, group));

  const int row = group * kRows + warp() % 4 * 16;  // the warp's first row in the block
  const int count = (at.heads_end - at.head) * at.tiles;
  int key = row;  // relative to the first query of the tile that is weighted
  const auto weigh = [&](int n) {
    weigh_keys(s, tiles.terms(n % kStages), key);
    key -= kRows;
    if (key == row - at.tiles * kRows) key = row;  // first tile of the next head
  };
  const auto differentiate = [&](int n) { differentiate_keys(dp, s, tiles.terms(n % kStages)); };
  const auto issue_products = [&](int n) {
    mbarrier_wait(&barriers.full[n % kStages], uint32_t(n / kStages) & 1);
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
  issue_products(0);
  wgmma_wait<0>();
  weigh(0);
  differentiate(0);
  round_sums(p_rows, s);
  round_sums(ds_rows, dp);

  // Main loop.
  for (int n = 1; n < count; ++n) {
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
  issue_sums(count - 1);
  wgmma_wait<0>();

  // Epilogue.
  const int first = at.k0 + row, stride = int(a.qkv.dim[1]), valid = int(a.sequence) - first;
  bf16* const to = a.dqkv.row(at.b * a.sequence + first) + (int(a.heads) + at.kv) * kD;
  turn_back<kD>(dk, a, first);
  store_sums(to, stride, valid, tiles.owned(0, group), dk, inverse_root<kD>(), a.dqk_amax.data);
  store_sums(to + a.kv_heads * kD, stride, valid, tiles.owned(1, group), dv, 1, a.dv_amax.data);
}

// Bound by the tensor cores (four products of 64 x 64 x 64 per tile and warpgroup, 512 clocks). The
// exponentials of both warpgroups take half of that time and overlap with the other's products. For
// the first tile of a head, the second warpgroup does masked (wasted) work. The first keys, seen by
// the most queries, start first.
__global__ __launch_bounds__(kThreads, 1) void attention_backward_keys_wgmma_kernel(
    const __grid_constant__ TermsArgs w, const __grid_constant__ Maps maps) {
  const AttentionBackward<bf16>& a = w.a;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles tiles{shared};
  const int kv_heads = int(a.kv_heads), per = int(a.heads) / kv_heads;
  const int kv = int(blockIdx.x) % kv_heads, k0 = int(blockIdx.y) * kOwned;
  const int query_tiles = ceil_div(int(a.sequence) - k0, kRows);
  const KeysPlace at{int(blockIdx.x) / kv_heads, kv, k0, kv * per, (kv + 1) * per, query_tiles};

  // Barriers.
  start(barriers);
  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x == 2 * kGroup) copy_for_keys(w, maps, at, tiles, barriers);
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    compute_keys(a, at, tiles, barriers, group);
  }
}

// --- Kernel for dq. A block owns 128 queries of a head; keys and values up to the last query
// stream by.

struct QueriesPlace {
  int b, h, kv, q0, tiles;
};

// TMA thread.
GPU_DEVICE void copy_for_queries(const AttentionBackward<bf16>& a, const Maps& maps,
                                 const QueriesPlace& at, const Tiles& tiles, Barriers& barriers) {
  load_owned(tiles, {&maps.qkv, at.h * kD, at.q0, at.b}, {&maps.dout, at.h * kD, at.q0, at.b},
             barriers);
  const int k_column = (int(a.heads) + at.kv) * kD;
  for (int tile = 0; tile < at.tiles; ++tile) {
    const int stage = tile % kStages, k0 = tile * kRows;
    Mbarrier* const full = begin_stage(barriers, tile, kOperands * kBoxBytes);
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
GPU_DEVICE void compute_queries(const TermsArgs& w, const QueriesPlace& at, const Tiles& tiles,
                                Barriers& barriers, int group) {
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
  mbarrier_wait(&barriers.owned, 0);
  load_fragments(q_rows, tiles.owned(0, group));
  load_fragments(dout_rows, tiles.owned(1, group));

  const auto weigh = [&](int tile) { weigh_queries(s, term, first - tile * kRows); };
  const auto differentiate = [&] {
#pragma unroll
    for (int i = 0; i < kSums; ++i) dp[i] = s[i] * (dp[i] - term[accum_half(i)].delta);
  };
  const auto issue_products = [&](int tile) {
    mbarrier_wait(&barriers.full[tile % kStages], uint32_t(tile / kStages) & 1);
    wgmma_fence();
    issue_scores(s, q_rows, tiles.streamed(tile % kStages, 0));
    issue_scores(dp, dout_rows, tiles.streamed(tile % kStages, 1));
  };
  const auto issue_sums = [&](int tile) {
    issue_sum(dq, ds_rows, tiles.streamed(tile % kStages, 0));
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
    release(&barriers.empty[(tile - 1) % kStages]);
    round_sums(ds_rows, dp);
  }

  // Sums of the last tile.
  wgmma_fence();
  issue_sums(at.tiles - 1);
  wgmma_wait<0>();

  // Epilogue.
  turn_back<kD>(dq, a, first);
  store_sums(a.dqkv.row(at.b * a.sequence + first) + at.h * kD, int(a.qkv.dim[1]),
             int(a.sequence) - first, tiles.owned(0, group), dq, inverse_root<kD>(),
             a.dqk_amax.data);
}

// Same bound as the keys kernel, with three products instead of four: the exponentials take two
// thirds of their time. For the last tile, the first warpgroup does masked (wasted) work. The last
// queries, which see the most keys, start first.
__global__ __launch_bounds__(kThreads, 1) void attention_backward_queries_wgmma_kernel(
    const __grid_constant__ TermsArgs w, const __grid_constant__ Maps maps) {
  const AttentionBackward<bf16>& a = w.a;
  GPU_DYNAMIC_SHARED(bf16, shared);
  GPU_SHARED(Barriers, barriers, );
  const Tiles tiles{shared};
  const int heads = int(a.heads), b = int(blockIdx.x) / heads, h = int(blockIdx.x) % heads;
  const int q0 = int(gridDim.y - 1 - blockIdx.y) * kOwned;
  const int end = smaller(q0 + kOwned, int(a.sequence));
  const QueriesPlace at{b, h, h / (heads / int(a.kv_heads)), q0, ceil_div(end, kRows)};

  // Barriers.
  start(barriers);
  const int group = int(threadIdx.x) / kGroup;
  if (group == 2) {
    // TMA warpgroup: one thread issues the loads.
    set_registers_down<24>();
    if (threadIdx.x == 2 * kGroup) copy_for_queries(a, maps, at, tiles, barriers);
  } else {
    // Math warpgroups.
    set_registers_up<240>();
    compute_queries(w, at, tiles, barriers, group);
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

}  // namespace

void attention_backward_wgmma(Exec on, const AttentionBackward<bf16>& a) {
  const TermsArgs w{a, padded(a.sequence)};
  const Maps maps{rows_map("attention_backward qkv", a.qkv, a),
                  rows_map("attention_backward dout", a.dout, a)};
  const int64_t threads = a.batch * w.padded * a.heads * kTermLanes;
  const unsigned blocks = unsigned(ceil_div(a.sequence, kOwned));
  launch(on,
         {.name = "attention_terms",
          .grid = {unsigned(ceil_div(threads, kTermThreads))},
          .block = {kTermThreads}},
         attention_terms_kernel, w);
  launch(on,
         {.name = "attention_backward_keys_wgmma",
          .grid = {unsigned(a.batch * a.kv_heads), blocks},
          .block = {kThreads},
          .shared_bytes = kSharedBytes},
         attention_backward_keys_wgmma_kernel, w, maps);
  launch(on,
         {.name = "attention_backward_queries_wgmma",
          .grid = {unsigned(a.batch * a.heads), blocks},
          .block = {kThreads},
          .shared_bytes = kSharedBytes},
         attention_backward_queries_wgmma_kernel, w, maps);
}

}  // namespace assay::gpu
