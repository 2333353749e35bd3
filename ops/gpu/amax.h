// Amax of the values that a kernel writes, computed by that kernel: an integer maximum of bit
// patterns, so that the order does not matter. An amax slot is zeroed, or holds the maximum of
// other kernels, before the launch.
#pragma once

#include "base/bf16.h"
#include "base/view.h"
#include "cuda/gpu.h"
#include "ops/quantise/scale.h"

namespace assay::gpu {

// A NaN may leave any NaN pattern in `most`.
GPU_DEVICE void take_most(uint32_t& most, float x) {
  const uint32_t bits = bits_of(x) & 0x7FFFFFFFu;
  most = most < bits ? bits : most;
}

// Called by one thread. Raises an amax slot. Most blocks and warps have nothing larger than earlier
// ones: the load spares them the atomic, which would serialise. The slot only grows, so a stale
// load costs at most a redundant atomic.
GPU_DEVICE void raise_word(uint32_t* word, uint32_t to) {
  if (atomic_load(word) < to) atomic_max(word, to);
}

// Called by every thread of the block, with its own maximum. `scratch`: kWarp words of shared
// memory.
GPU_DEVICE void update_amax(float* most_of_all, uint32_t most, uint32_t* scratch) {
  most = magnitude_bits(float_of(block_reduce(most, Max{}, 0u, scratch)));
  if (thread_in_block() == 0) raise_word(reinterpret_cast<uint32_t*>(most_of_all), most);
}

// Compile-time switch of the amax, for kernels whose registers limit the number of blocks per SM.
enum class WithAmax { kNo, kYes };

// Amax of the values that a thread stores; does nothing if there is no amax slot. Values may be
// passed before they are rounded to T: rounding is monotonic, so only the maximum is rounded.
struct AmaxAccumulator {
  float* of_all;  // amax slot; null: amax is not needed
  uint32_t bits = 0;

  template <WithAmax kWithAmax>
  GPU_DEVICE static AmaxAccumulator of(const View<float, 1>& word) {
    return {kWithAmax == WithAmax::kYes ? word.data : nullptr};
  }

  template <int N>
  GPU_DEVICE void take(const float (&x)[N]) {
    if (of_all == nullptr) return;
#pragma unroll
    for (int i = 0; i < N; ++i) take_most(bits, x[i]);
  }
  // Pairs of bf16.
  template <int N>
  GPU_DEVICE void take(const Vec<uint32_t, N>& pairs) {
    if (of_all == nullptr) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      take_most(bits, unpack_low(pairs[i]));
      take_most(bits, unpack_high(pairs[i]));
    }
  }
  template <typename T>
  GPU_DEVICE uint32_t rounded() const {
    T stored;
    round_to(stored, float_of(bits));
    return magnitude_bits(float(stored));
  }
  // Called by every thread of the block.
  template <typename T>
  GPU_DEVICE void raise(uint32_t* scratch) const {
    if (of_all != nullptr) update_amax(of_all, rounded<T>(), scratch);
  }
  // Called by every lane of the warp.
  template <typename T>
  GPU_DEVICE void raise_of_warp() const {
    if (of_all == nullptr) return;
    const uint32_t most = warp_max_u32(rounded<T>());
    if (lane() == 0) raise_word(reinterpret_cast<uint32_t*>(of_all), most);
  }
};

// Stores the copy's site if no other site is stored. Ops run one after another, so the first op
// with a non-finite amax keeps its mark; its blocks agree on the larger mark.
GPU_DEVICE void mark_not_finite(const View<uint32_t, 1>& first, uint32_t site, uint32_t most) {
  if (first.empty() || most < kInfinityBits) return;
  const uint32_t seen = atomic_load(first.data);
  if (seen == 0 || seen / 2 == site) raise_word(first.data, not_finite_mark(site, most));
}

}  // namespace assay::gpu
