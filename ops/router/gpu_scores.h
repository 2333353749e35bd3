// Shared by the kernels of ops/router.cu and ops/router/backward.cu: scores, the order of
// selection, and the sum over the K chosen experts of a token, which a warp computes together.
#pragma once

#include <cmath>

#include "cuda/gpu.h"
#include "ops/router.h"

namespace assay::gpu::router {

inline constexpr float kSmallestSum = 1e-12f;
inline constexpr float kInfinity = __builtin_inff();

// On the host, before a launch that reads 16 bytes at a time. Null counts as aligned.
inline bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

GPU_DEVICE float sigmoid(float x) {
  return reciprocal_approx(1.0f + exp_approx(-x));
}

// The divisor of sigmoid scores, whose sum may underflow.
GPU_DEVICE float sum_or_smallest(float sum) {
  return sum < kSmallestSum ? kSmallestSum : sum;
}

// Integer key that increases with x; 1 for NaN, never 0. Both zeros have the same key.
GPU_DEVICE uint32_t order_key(float x) {
  const uint32_t u = bits_of(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 1;
  if (u == 0x80000000u) return 0x80000000u;
  return (u >> 31) != 0 ? ~u : u | 0x80000000u;
}

// A key and its expert. Among equal keys the lower id is better.
struct Candidate {
  uint32_t key = 0;
  int32_t expert = 0;

  // Ids must ascend from call to call.
  GPU_DEVICE void offer(uint32_t other, int32_t id) {
    if (other > key) {
      key = other;
      expert = id;
    }
  }
};

// The best candidate of all lanes.
GPU_DEVICE Candidate warp_best(Candidate mine) {
  const uint32_t key = warp_max_u32(mine.key);
  const uint32_t inverse = warp_max_u32(mine.key == key ? ~uint32_t(mine.expert) : 0u);
  return {key, int32_t(~inverse)};
}

GPU_DEVICE void raise(float& largest, float x) {
  if (x > largest) largest = x;
}

// Softmax of one row. Probabilities avoid the rounding of logsumexp, which is relative to its own
// size.
struct Softmax {
  float largest = 0;
  float inverse = 0;  // 1 / sum exp(z - largest)
  float logsumexp = 0;

  // Called by all lanes of a warp; `sum` is this lane's part of sum exp(z - largest).
  GPU_DEVICE void finish(float sum) {
    sum = warp_sum(sum);
    inverse = 1.0f / sum;
    logsumexp = largest + std::log(sum);
  }
  GPU_DEVICE float probability(float z) const { return exp_approx(z - largest) * inverse; }
};

// Score s of one expert; `softmax` is that of the row, if the scores are softmax.
GPU_DEVICE float score_of(const RouterSettings& s, float z, const Softmax& softmax) {
  return s.score == RouterScore::kSigmoid ? sigmoid(s.route_scale * z) : softmax.probability(z);
}

// The divisor of the normalised gates of one token.
struct Chosen {
  float largest = -kInfinity;  // largest of the chosen logits; softmax only
  float sum = 0;
  bool clamped = false;  // sum is kSmallestSum and not the sum of the scores

  // The score s; softmax: exp(z - largest chosen z).
  GPU_DEVICE float score(const RouterSettings& s, float z) const {
    return s.score == RouterScore::kSigmoid ? sigmoid(s.route_scale * z) : exp_approx(z - largest);
  }
};

// Called by all lanes of a warp; `id` is in shared or global memory.
GPU_DEVICE Chosen chosen_sum(const RouterSettings& s, const float* row, const int32_t* id, int k) {
  Chosen chosen;
  const bool is_sigmoid = s.score == RouterScore::kSigmoid;
  if (!is_sigmoid) {
    for (int i = lane(); i < k; i += kWarp) raise(chosen.largest, row[id[i]]);
    chosen.largest = warp_max(chosen.largest);
  }
  float sum = 0;
  for (int i = lane(); i < k; i += kWarp) sum += chosen.score(s, row[id[i]]);
  sum = warp_sum(sum);
  chosen.clamped = is_sigmoid && sum < kSmallestSum;
  chosen.sum = is_sigmoid ? sum_or_smallest(sum) : sum;
  return chosen;
}

}  // namespace assay::gpu::router
