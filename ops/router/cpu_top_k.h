// The K best of a row: larger key first, ties to the lower id, NaN last. Used by ops/router.cpp;
// kept separate because the order of ties is a contract.
//
// Two passes. The first finds the largest key of each of G = 16, 64 or 128 interleaved groups; the
// K-th largest of these is a lower bound of the K-th key, and few keys reach it (G (H(G) - H(G -
// K)) of a random row, H harmonic: 9 for K = 7). The second pass inserts these keys into a sorted
// list. Inserting every key that beats the worst of the list costs ten times as much at E = 4096, K
// = 7: about 50 mispredicted insertions per row.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <limits>

#include "base/vector_math.h"

namespace assay {

constexpr int64_t kMaxTopK = 128;

// Loads n <= kVector floats; the rest is padding.
inline f32x16 load_padded(const float* p, int64_t n, float padding) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
  return std::bit_cast<f32x16>(_mm512_mask_loadu_ps(_mm512_set1_ps(padding), mask, p));
#else
  float buffer[kVector];
  for (int64_t i = 0; i < kVector; ++i) buffer[i] = i < n ? p[i] : padding;
  return load(buffer);
#endif
}

class TopK {
 public:
  explicit TopK(int64_t k) : k_(k) {}

  // Adds the keys of ids [first, first + n); ids must ascend from call to call.
  void add(const float* keys, int64_t n, int32_t first) {
    const float bound = k_ <= 8    ? lower_bound<1>(keys, n)
                        : k_ <= 40 ? lower_bound<4>(keys, n)
                                   : lower_bound<8>(keys, n);
    if (bound == -kInfinity) {  // fewer than K groups have a number
      for (int64_t i = 0; i < n; ++i) offer(keys[i], first + static_cast<int32_t>(i));
      return;
    }
    for (int64_t i = 0; i < n; i += kVector) {
      const int64_t count = n - i < kVector ? n - i : kVector;
      uint32_t reach = not_below(keys + i, count, bound);
      for (; reach != 0; reach &= reach - 1) {
        const int64_t at = i + __builtin_ctz(reach);
        offer(keys[at], first + static_cast<int32_t>(at));
      }
    }
  }

  const int32_t* ids() const { return id_; }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // True if `late`, which has the higher id, ranks before `early`.
  static bool beats(float late, float early) { return !(late <= early) && late == late; }

  void offer(float key, int32_t id) {
    if (count_ == k_) {
      if (!beats(key, key_[k_ - 1])) return;
      --count_;
    }
    int64_t at = count_++;
    for (; at > 0 && beats(key, key_[at - 1]); --at) {
      key_[at] = key_[at - 1];
      id_[at] = id_[at - 1];
    }
    key_[at] = key;
    id_[at] = id;
  }

  // The K-th largest of the largest keys of kGroups * kVector groups; -inf if fewer than K groups
  // have a number.
  template <int kGroups>
  float lower_bound(const float* keys, int64_t n) const {
    f32x16 largest[kGroups];
    for (f32x16& v : largest) v = broadcast(-kInfinity);
    const auto raise = [&](f32x16& v, f32x16 key) { v = select(key > v, key, v); };
    int64_t i = 0;
    for (; i + kGroups * kVector <= n; i += kGroups * kVector) {
      for (int g = 0; g < kGroups; ++g) raise(largest[g], load(keys + i + g * kVector));
    }
    for (int g = 0; i < n; ++g, i += kVector) {
      raise(largest[g], load_padded(keys + i, n - i < kVector ? n - i : kVector, -kInfinity));
    }
    // above[j]: number of groups whose largest key exceeds that of group j.
    i32x16 above[kGroups] = {};
    for (const f32x16& other : largest) {
      for (int lane = 0; lane < kVector; ++lane) {
        for (int g = 0; g < kGroups; ++g) above[g] -= other[lane] > largest[g];
      }
    }
    f32x16 bound = broadcast(-kInfinity);  // bound of the negated keys
    for (int g = 0; g < kGroups; ++g) {
      const f32x16 among =
          select(above[g] < static_cast<int32_t>(k_), -largest[g], broadcast(-kInfinity));
      bound = select(among > bound, among, bound);
    }
    return -horizontal_max(bound);
  }

  // Bit j: keys[j] >= bound.
  static uint32_t not_below(const float* keys, int64_t n, float bound) {
#if defined(__AVX512F__)
    const __m512 v = std::bit_cast<__m512>(load_padded(keys, n, -kInfinity));
    return _mm512_cmp_ps_mask(v, _mm512_set1_ps(bound), _CMP_GE_OQ);
#else
    uint32_t mask = 0;
    for (int64_t j = 0; j < n; ++j) mask |= uint32_t{keys[j] >= bound} << j;
    return mask;
#endif
  }

  int64_t k_;
  int64_t count_ = 0;
  float key_[kMaxTopK];
  int32_t id_[kMaxTopK];
};

}  // namespace assay
