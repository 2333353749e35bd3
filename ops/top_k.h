// The K best of a row: larger key first, ties to the lower id, NaN after every number. Used by ops/router.cpp; kept
// apart because the order of ties is a contract.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "base/vector_math.h"

namespace assay {

constexpr int64_t kMaxTopK = 128;

class TopK {
 public:
  explicit TopK(int64_t k) : k_(k) {}

  // Keys of ids [first, first + n), n <= kVector; ids rise from call to call.
  void add(f32x16 keys, int64_t n, int32_t first) {
    uint32_t better = count_ < k_ ? 0xFFFFu : better_mask(keys);
    if (n < kVector) better &= (1u << n) - 1;
    if (better == 0) return;
    float key[kVector];
    std::memcpy(key, &keys, sizeof key);
    for (; better != 0; better &= better - 1) {
      const int j = __builtin_ctz(better);
      offer(key[j], first + j);
    }
  }

  const int32_t* ids() const { return id_; }

 private:
  // True where `late`, which has the higher id, comes before `early`.
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

  // Bit j: keys[j] beats the worst kept.
  uint32_t better_mask(f32x16 keys) const {
    const float worst = key_[k_ - 1];
#if defined(__AVX512F__)
    const __m512 v = std::bit_cast<__m512>(keys);
    const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    return _mm512_mask_cmp_ps_mask(number, v, _mm512_set1_ps(worst), _CMP_NLE_UQ);
#else
    uint32_t mask = 0;
    for (int j = 0; j < kVector; ++j) mask |= uint32_t{beats(keys[j], worst)} << j;
    return mask;
#endif
  }

  int64_t k_;
  int64_t count_ = 0;
  float key_[kMaxTopK];
  int32_t id_[kMaxTopK];
};

}  // namespace assay
