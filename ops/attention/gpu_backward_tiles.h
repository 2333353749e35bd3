// What the kernels of attention backward by wgmma share (gpu_backward_keys_wgmma.cu and
// gpu_backward_queries_wgmma.cu): shared memory, barriers, loads by TMA, the steps of the products.
#pragma once

#include "cuda/gpu.h"
#include "ops/attention.h"
#include "ops/attention/gpu_fragments.h"
#include "ops/attention/gpu_work_list.h"

namespace assay::gpu::backward_wgmma {

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

struct TermsArgs {
  AttentionBackward<bf16> a;
  int64_t padded;  // T rounded up to 64
};

// Stages of the owned rows: those of the next work land while the last one is stored.
constexpr int kOwnedStages = 2;

// Barriers. full: bytes have landed; empty: all math warps have read them.
struct Barriers {
  Mbarrier owned_full[kOwnedStages], owned_empty[kOwnedStages], full[kStages], empty[kStages];
};
GPU_DEVICE void start(Barriers& barriers) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kOwnedStages; ++stage) {
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
struct Tiles {
  static constexpr int kOwned = kOwnedStages * kOwnedBoxes;
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
GPU_DEVICE void load_owned(const Tiles& tiles, Corner first, Corner second, int round,
                           Barriers& barriers) {
  const int stage = round % kOwnedStages;
  Mbarrier* const full = &barriers.owned_full[stage];
  mbarrier_wait(&barriers.owned_empty[stage], empty_phase(round, kOwnedStages));
  mbarrier_arrive_expect(full, kOwnedBoxes * kBoxBytes);
  for (int group = 0; group < 2; ++group) {
    load_box(tiles.owned(stage, 0, group), first, full);
    load_box(tiles.owned(stage, 1, group), second, full);
    first.row += kRows;
    second.row += kRows;
  }
}
// Waits until the owned rows of a round have landed, and returns their stage.
GPU_DEVICE int await_owned(int round, Barriers& barriers) {
  const int stage = round % kOwnedStages;
  mbarrier_wait(&barriers.owned_full[stage], full_phase(round, kOwnedStages));
  return stage;
}
// After a warp has stored its sums through its owned rows.
GPU_DEVICE void release_owned(int stage, Barriers& barriers) {
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

// Launches the kernel for dk and dv, and the one for dq; both need the terms.
void launch_keys(Exec on, const TermsArgs& w, const Maps& maps);
void launch_queries(Exec on, const TermsArgs& w, const Maps& maps);

}  // namespace assay::gpu::backward_wgmma
