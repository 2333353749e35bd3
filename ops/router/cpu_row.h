// One row of logits, a vector at a time, for ops/router.cpp and ops/router/backward.cpp. The end of
// the row is padded with -inf: sigmoid and exp of the padding are 0, and all elements take the same
// path, so that equal logits have equal scores. Sums are kept in a vector and reduced in a fixed
// order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/vector_math.h"
#include "ops/router.h"
#include "ops/router/cpu_top_k.h"

namespace assay::router_row {

constexpr int64_t kPieceRows = kRouterPieceTokens;
constexpr float kSmallestSum = 1e-12f;
// The divisor of sigmoid scores, whose sum may underflow.
inline float sum_or_smallest(float sum) {
  return sum < kSmallestSum ? kSmallestSum : sum;
}
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline void store_part(float* p, int64_t n, f32x16 v) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
  _mm512_mask_storeu_ps(p, mask, std::bit_cast<__m512>(v));
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}
inline void store_part(bf16* p, int64_t n, f32x16 v) {
  bf16 buffer[kVector];
  store(buffer, v);
  std::copy(buffer, buffer + n, p);
}

// Calls f(begin, n, z) for n <= kVector logits at a time.
template <typename F>
inline void for_vectors(const float* row, int64_t experts, F&& f) {
  int64_t e = 0;
  for (; e + kVector <= experts; e += kVector) f(e, int64_t{kVector}, load(row + e));
  if (e < experts) f(e, experts - e, load_padded(row + e, experts - e, -kInfinity));
}

// The elements of another row that match z; 0 for the padding.
inline f32x16 beside(const float* row, int64_t begin, int64_t n) {
  return n == kVector ? load(row + begin) : load_padded(row + begin, n, 0.0f);
}

// 1 / x for x >= 1; 0 from 2^126 on. Two more roundings than a division, in a third of its time.
inline f32x16 reciprocal(f32x16 x) {
#if defined(__AVX512F__)
  const f32x16 y = std::bit_cast<f32x16>(_mm512_maskz_rcp14_ps(0xFFFF, std::bit_cast<__m512>(x)));
  const f32x16 better = y + y * (1.0f - x * y);
  return select(x >= 0x1p126f, f32x16{}, better);
#else
  return 1.0f / x;
#endif
}

inline f32x16 sigmoid(f32x16 x) {
  return reciprocal(1.0f + exp_fast(-x));
}

inline float logsumexp(const float* row, int64_t experts) {
  f32x16 largest = broadcast(-kInfinity), sum{};
  for_vectors(row, experts,
              [&](int64_t, int64_t, f32x16 z) { largest = select(z > largest, z, largest); });
  const float m = horizontal_max(largest);
  for_vectors(row, experts, [&](int64_t, int64_t, f32x16 z) { sum += exp_fast(z - m); });
  return m + std::log(horizontal_sum(sum));
}

// Scores and gates of the K chosen experts of a token, from their logits.
struct Chosen {
  float score[kMaxTopK];  // s; softmax: exp(z - largest chosen z)
  float rest[kMaxTopK];   // 1 - s without cancellation; sigmoid only
  float ghat[kMaxTopK];   // normalised gates
  bool clamped = false;   // the divisor is kSmallestSum and not the sum of the scores

  Chosen(const float* row, const int32_t* id, int64_t k, const RouterSettings& settings) {
    const bool is_sigmoid = settings.score == RouterScore::kSigmoid;
    float z[kMaxTopK];
    float largest = row[id[0]];
    for (int64_t i = 0; i < k; ++i) {
      z[i] = row[id[i]];
      largest = z[i] > largest ? z[i] : largest;
    }
    for_vectors(z, k, [&](int64_t i, int64_t, f32x16 v) {
      if (is_sigmoid) {
        store(score + i, sigmoid(settings.route_scale * v));
        store(rest + i, sigmoid(-settings.route_scale * v));
      } else {
        store(score + i, exp_fast(v - largest));
      }
    });
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += score[i];
    clamped = is_sigmoid && sum < kSmallestSum;
    if (is_sigmoid) sum = sum_or_smallest(sum);
    for (int64_t i = 0; i < k; ++i) ghat[i] = score[i] / sum;
  }
};

}  // namespace assay::router_row
