// Threads of a block: positions, barriers, exchanges within a warp, reductions, integer atomics,
// wide memory accesses, approximate arithmetic.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/math.h"
#include "base/small_float.h"
#include "cuda/kernel/language.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Threads of a block are counted along x, then y, then z, as the hardware forms warps.
GPU_DEVICE int thread_in_block() {
  return int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
GPU_DEVICE int lane() {
  return thread_in_block() % kWarp;
}
GPU_DEVICE int warp() {
  return thread_in_block() / kWarp;
}

// --- Barriers. sync_block: all threads of the block that have not exited. sync_warp: the lanes of
// `mask`. named_barrier: `threads` threads (a multiple of 32) that name the barrier `id` in [1, 15]
// (0 is sync_block's); named_barrier_arrive counts but does not wait.
#if defined(__CUDACC__)
GPU_DEVICE void sync_block() {
  __syncthreads();
}
GPU_DEVICE void sync_warp(uint32_t mask = kAllLanes) {
  __syncwarp(mask);
}
GPU_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
GPU_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#else
// The SIMT emulator reports the caller's line: its functions take it as a default argument
// (cuda/simt/source_location.h).
using simt::named_barrier_arrive;
using simt::named_barrier_sync;
using simt::sync_block;
using simt::sync_warp;
#endif

// Changes nothing. The compiler computes anew what it has computed from x, and reads memory again,
// where it would keep results in registers over what comes between. x: whole words, in registers.
template <typename T>
GPU_DEVICE void compute_anew([[maybe_unused]] T& x) {
#if defined(__CUDACC__)
  static_assert(sizeof(T) % 4 == 0);
  uint32_t words[sizeof(T) / 4];
  memcpy(words, &x, sizeof(T));
  for (uint32_t& word : words) asm volatile("" : "+r"(word)::"memory");
  memcpy(&x, words, sizeof(T));
#endif
}

// --- Exchanges within a warp, called by all 32 lanes. T has 4 or 8 bytes. Lanes exchange within
// groups of `width`, a power of two up to 32.
#if defined(__CUDACC__)
template <typename T>
GPU_DEVICE T shuffle(T value, int source, int width = kWarp) {
  return __shfl_sync(kAllLanes, value, source, width);
}
template <typename T>
GPU_DEVICE T shuffle_xor(T value, int lane_mask, int width = kWarp) {
  return __shfl_xor_sync(kAllLanes, value, lane_mask, width);
}
template <typename T>
GPU_DEVICE T shuffle_up(T value, int delta, int width = kWarp) {
  return __shfl_up_sync(kAllLanes, value, delta, width);
}
template <typename T>
GPU_DEVICE T shuffle_down(T value, int delta, int width = kWarp) {
  return __shfl_down_sync(kAllLanes, value, delta, width);
}
GPU_DEVICE uint32_t ballot(int condition) {
  return __ballot_sync(kAllLanes, condition);
}
// A mask of the lanes that hold the same value.
GPU_DEVICE uint32_t match_any(uint32_t value) {
  return __match_any_sync(kAllLanes, value);
}
GPU_DEVICE uint32_t warp_max_u32(uint32_t value) {
  return __reduce_max_sync(kAllLanes, value);
}
GPU_DEVICE int population_count(uint32_t bits) {
  return __popc(bits);
}
// Index of the lowest set bit; bits != 0.
GPU_DEVICE int lowest_bit(uint32_t bits) {
  return __ffs(int(bits)) - 1;
}
#else
using simt::ballot;
using simt::match_any;
using simt::shuffle;
using simt::shuffle_down;
using simt::shuffle_up;
using simt::shuffle_xor;
using simt::warp_max_u32;
GPU_DEVICE int population_count(uint32_t bits) {
  return __builtin_popcount(bits);
}
GPU_DEVICE int lowest_bit(uint32_t bits) {
  return __builtin_ctz(bits);
}
#endif

// --- Reductions, by a butterfly in a fixed order. Every lane gets the same bits of a sum and of
// integers. Of Max of floats, lanes may differ where there is a NaN, or 0 and -0.
struct Sum {
  template <typename T>
  GPU_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <typename T>
  GPU_DEVICE T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
template <typename T, typename Op>
GPU_DEVICE T warp_reduce(T value, Op op, int width = kWarp) {
  for (int mask = width / 2; mask > 0; mask /= 2)
    value = op(value, shuffle_xor(value, mask, width));
  return value;
}
template <typename T>
GPU_DEVICE T warp_sum(T value, int width = kWarp) {
  return warp_reduce(value, Sum{}, width);
}
template <typename T>
GPU_DEVICE T warp_max(T value, int width = kWarp) {
  return warp_reduce(value, Max{}, width);
}
// Reduces over all threads of the block; their number is a multiple of 32. `scratch` has kWarp
// elements in shared memory and may be reused at once, as the function ends with a barrier.
template <typename T, typename Op>
GPU_DEVICE T block_reduce(T value, Op op, T identity, T* scratch) {
  value = warp_reduce(value, op);
  const int warps = int(blockDim.x * blockDim.y * blockDim.z) / kWarp;
  if (lane() == 0) scratch[warp()] = value;
  sync_block();
  T total = lane() < warps ? scratch[lane()] : identity;
  total = warp_reduce(total, op);
  sync_block();
  return total;
}
template <typename T>
GPU_DEVICE T block_sum(T value, T* scratch) {
  return block_reduce(value, Sum{}, T(0), scratch);
}
// Sum of the values of lower lanes.
template <typename T>
GPU_DEVICE T warp_exclusive_sum(T value) {
  T inclusive = value;
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const T below = shuffle_up(inclusive, delta);
    if (lane() >= delta) inclusive += below;
  }
  return inclusive - value;
}

// --- Integer atomics (the result does not depend on the order), in global or shared memory. Each
// returns the old value.
#if defined(__CUDACC__)
GPU_DEVICE int32_t atomic_add(int32_t* p, int32_t value) {
  return atomicAdd(p, value);
}
GPU_DEVICE uint32_t atomic_add(uint32_t* p, uint32_t value) {
  return atomicAdd(p, value);
}
GPU_DEVICE int64_t atomic_add(int64_t* p, int64_t value) {
  return int64_t(atomicAdd(reinterpret_cast<unsigned long long*>(p), (unsigned long long)(value)));
}
GPU_DEVICE uint32_t atomic_max(uint32_t* p, uint32_t value) {
  return atomicMax(p, value);
}
// Relaxed load of a word that other threads change atomically; the value may already be stale.
GPU_DEVICE uint32_t atomic_load(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
// Orders this thread's earlier writes before its later ones, as seen by other blocks.
GPU_DEVICE void fence_device() {
  __threadfence();
}
#else
using simt::atomic_add;
using simt::atomic_load;
using simt::atomic_max;
using simt::fence_device;
#endif

// --- Memory. N contiguous elements at an address aligned to N * sizeof(T) (4, 8 or 16 bytes), in
// one access.
template <typename T, int N>
struct alignas(N * sizeof(T)) Vec {
  T element[N];
  GPU_DEVICE T& operator[](int i) { return element[i]; }
  GPU_DEVICE const T& operator[](int i) const { return element[i]; }
};
template <int N, typename T>
GPU_DEVICE Vec<std::remove_const_t<T>, N> load_vec(const T* p) {
  return *reinterpret_cast<const Vec<std::remove_const_t<T>, N>*>(p);
}
template <int N, typename T>
GPU_DEVICE void store_vec(T* p, const Vec<T, N>& v) {
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}
// As store_vec, but always one access: nvcc may split the copy of store_vec into N stores (seen in
// the PTX where two such copies follow each other).
template <int N, typename T>
GPU_DEVICE void store_whole(T* p, const Vec<T, N>& v) {
#if defined(__CUDACC__)
  struct Words {
    uint32_t word[sizeof(v) / 4];
  };
  if constexpr (sizeof(v) == 16) {
    const Words w = __builtin_bit_cast(Words, v);
    asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1]),
                 "r"(w.word[2]), "r"(w.word[3])
                 : "memory");
    return;
  } else if constexpr (sizeof(v) == 8) {
    const Words w = __builtin_bit_cast(Words, v);
    asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1]) : "memory");
    return;
  }
#endif
  store_vec<N>(p, v);
}

// Adds v to four floats of global memory, aligned to 16 bytes: the memory adds, and the thread does
// not wait. Subnormal elements of v, of the memory and of the sum count as zeros of their sign. A
// float has at most one thread that adds to it in a launch, or the order of additions would decide
// the bits: the emulator counts this as a read and a write, so that two threads are a race. GPUs
// before 9.0 lack it, and kernels do not call it there.
#if defined(__CUDACC__)
GPU_DEVICE void reduce_add(float* p, const Vec<float, 4>& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(p)),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
#else
  __trap();
#endif
}
#else
GPU_DEVICE void reduce_add(float* p, const Vec<float, 4>& v,
                           simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::reduce_add(p, v.element, here);
}
#endif

// --- Arithmetic with an instruction of its own. exp2_approx is within 2 ulp; its subnormal results
// are 0.
#if defined(__CUDACC__)
GPU_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GPU_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GPU_DEVICE float reciprocal_sqrt(float x) {
  return rsqrtf(x);
}
// Rounds to nearest even; `low` goes to the low half. A NaN stays NaN (on a GPU the canonical one).
GPU_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// Two 8-bit codes, `low` in the low byte, rounded to nearest even and saturating; NaN stays NaN. By
// the rules of base/small_float.h on GPUs before 8.9, which have no instruction for it.
GPU_DEVICE uint32_t pack_e4m3(float low, float high) {
#if __CUDA_ARCH__ < 890
  return e4m3::nearest(low) | e4m3::nearest(high) << 8;
#else
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#endif
}
GPU_DEVICE uint32_t pack_e5m2(float low, float high) {
#if __CUDA_ARCH__ < 890
  return e5m2::nearest(low) | e5m2::nearest(high) << 8;
#else
  uint16_t packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#endif
}
// The maximum of each unsigned 16-bit half.
GPU_DEVICE uint32_t max_u16x2(uint32_t a, uint32_t b) {
  return __vmaxu2(a, b);
}
GPU_DEVICE uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
GPU_DEVICE float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}
#else
using simt::exp2_approx;
GPU_DEVICE float reciprocal_approx(float x) {
  return 1.0f / x;
}
GPU_DEVICE float reciprocal_sqrt(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
GPU_DEVICE uint32_t pack_bf16(float low, float high) {
  return uint32_t{bf16::round_nearest_even(low)} | uint32_t{bf16::round_nearest_even(high)} << 16;
}
GPU_DEVICE uint32_t pack_e4m3(float low, float high) {
  return e4m3::nearest(low) | e4m3::nearest(high) << 8;
}
GPU_DEVICE uint32_t pack_e5m2(float low, float high) {
  return e5m2::nearest(low) | e5m2::nearest(high) << 8;
}
GPU_DEVICE uint32_t max_u16x2(uint32_t a, uint32_t b) {
  const uint32_t low = (a & 0xFFFFu) < (b & 0xFFFFu) ? b : a;
  const uint32_t high = a >> 16 < b >> 16 ? b : a;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
}
GPU_DEVICE uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}
GPU_DEVICE float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
#endif
GPU_DEVICE float unpack_low(uint32_t packed) {
  return float_of(packed << 16);
}
GPU_DEVICE float unpack_high(uint32_t packed) {
  return float_of(packed & 0xFFFF0000u);
}
// e^x, by exp2_approx.
GPU_DEVICE float exp_approx(float x) {
  return exp2_approx(x * kLog2E);
}

}  // namespace assay::gpu
