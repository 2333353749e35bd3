// Largest magnitudes as bit patterns (ops/quantise/scale.h), for the CPU ops.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/quantise/scale.h"

namespace assay {

inline uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    most = bits > most ? bits : most;
  }
  return most;
}

inline uint32_t largest_bits(const bf16* x, int64_t n) {
  uint16_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<uint16_t>(x[i].bits & 0x7FFFu);
    most = bits > most ? bits : most;
  }
  return magnitude_bits(std::bit_cast<float>(uint32_t{most} << 16));
}

// most = max(most, bits), atomically.
inline void raise_to(std::atomic<uint32_t>& most, uint32_t bits) {
  uint32_t seen = most.load();
  while (seen < bits && !most.compare_exchange_weak(seen, bits)) {
  }
}

// Raises the amax slot `most`, which is not empty, to the largest magnitude of x (n).
template <typename T>
[[gnu::noinline]] void raise_amax_slot(const View<float, 1>& most, const T* x, int64_t n) {
  const uint32_t bits = largest_bits(x, n);
  std::atomic_ref<float> all(most[0]);
  for (float seen = all.load(); magnitude_bits(seen) < bits;) {
    if (all.compare_exchange_weak(seen, std::bit_cast<float>(bits))) return;
  }
}
// The same, or nothing if there is no slot. Inlined, because attention calls it for each row of a
// head.
template <typename T>
[[gnu::always_inline]] inline void update_amax(const View<float, 1>& most, const T* x, int64_t n) {
  if (!most.empty()) raise_amax_slot(most, x, n);
}

// Stores the copy's site if no other site is stored; of the marks of one site the larger is kept.
inline void mark_not_finite(const View<uint32_t, 1>& first, uint32_t site, uint32_t most) {
  if (first.empty() || most < kInfinityBits) return;
  std::atomic_ref<uint32_t> mark(first[0]);
  const uint32_t mine = not_finite_mark(site, most);
  for (uint32_t seen = mark.load(); seen == 0 || (seen / 2 == site && seen < mine);) {
    if (mark.compare_exchange_weak(seen, mine)) return;
  }
}

}  // namespace assay
