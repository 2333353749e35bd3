// The largest magnitude of what a kernel writes, made by that kernel: an integer maximum of bit
// patterns, so that the order does not matter. The word is 0, or what other kernels left in it,
// before.
#pragma once

#include "base/bf16.h"
#include "base/view.h"
#include "cuda/gpu.h"
#include "ops/quantise/scale.h"

namespace assay::gpu {

// A NaN may leave any of its patterns here.
GPU_DEVICE void take_most(uint32_t& most, float x) {
  const uint32_t bits = bits_of(x) & 0x7FFFFFFFu;
  most = most < bits ? bits : most;
}

// One thread. Most of a kernel's blocks and warps have nothing larger than those before them: a
// read spares them the maximum, which all of them would wait for in turn. The word only grows, so
// an old value costs a maximum too many and changes nothing.
GPU_DEVICE void raise_word(uint32_t* word, uint32_t to) {
  if (atomic_load(word) < to) atomic_max(word, to);
}

// Every thread of the block calls it, with its own largest. `scratch`: kWarp words of shared
// memory.
GPU_DEVICE void update_amax(float* most_of_all, uint32_t most, uint32_t* scratch) {
  most = magnitude_bits(float_of(block_reduce(most, Max{}, 0u, scratch)));
  if (thread_in_block() == 0) raise_word(reinterpret_cast<uint32_t*>(most_of_all), most);
}

// For kernels whose registers decide how many blocks a multiprocessor has: they are compiled for
// both answers.
enum class Asks { kNo, kYes };

// The largest magnitude of what a thread stores, where somebody asks for it. Values may be taken
// before they are rounded to T: rounding keeps their order, so that the largest is rounded alone.
struct AmaxAccumulator {
  float* of_all;  // null: nobody asks
  uint32_t bits = 0;

  template <Asks kAsks>
  GPU_DEVICE static AmaxAccumulator of(const View<float, 1>& word) {
    return {kAsks == Asks::kYes ? word.data : nullptr};
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
  // Every thread of the block calls it.
  template <typename T>
  GPU_DEVICE void raise(uint32_t* scratch) const {
    if (of_all != nullptr) update_amax(of_all, rounded<T>(), scratch);
  }
  // Every lane of the warp.
  template <typename T>
  GPU_DEVICE void raise_of_warp() const {
    if (of_all == nullptr) return;
    const uint32_t most = warp_max_u32(rounded<T>());
    if (lane() == 0) raise_word(reinterpret_cast<uint32_t*>(of_all), most);
  }
};

// Leaves the copy's site where nothing was before it. Ops that follow each other run one after the
// other: the first one keeps its mark, and its blocks agree on the larger.
GPU_DEVICE void mark_not_finite(const View<uint32_t, 1>& first, uint32_t site, uint32_t most) {
  if (first.empty() || most < kInfinityBits) return;
  const uint32_t seen = atomic_load(first.data);
  if (seen == 0 || seen / 2 == site) raise_word(first.data, not_finite_mark(site, most));
}

}  // namespace assay::gpu
