// Largest magnitudes as bit patterns (ops/quantise_scale.h), for the CPU ops.
#pragma once

#include <atomic>
#include <cstdint>

#include "ops/quantise_scale.h"

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

// most = max(most, bits), by any thread.
inline void raise_to(std::atomic<uint32_t>& most, uint32_t bits) {
  uint32_t seen = most.load();
  while (seen < bits && !most.compare_exchange_weak(seen, bits)) {
  }
}

}  // namespace assay
