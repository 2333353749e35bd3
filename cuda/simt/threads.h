// The SIMT emulator's barriers, exchanges within a warp, atomics and arithmetic. Kernels use them
// through cuda/kernel/warp.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/simt/block.h"

namespace assay::simt {

inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

void sync_block(SourceLocation here = SourceLocation::caller());
void sync_warp(uint32_t mask = kAllLanes, SourceLocation here = SourceLocation::caller());
void named_barrier_sync(int id, int threads, SourceLocation here = SourceLocation::caller());
void named_barrier_arrive(int id, int threads, SourceLocation here = SourceLocation::caller());

// Each lane gets the bits of `value` of its source lane, or its own if the source is outside its
// group of `width`.
enum class Shuffle { kIndex, kXor, kUp, kDown };
uint64_t shuffle_bits(const char* what, Shuffle kind, uint64_t value, int operand, int width,
                      SourceLocation here);

template <typename T>
inline T shuffle_value(const char* what, Shuffle kind, T value, int operand, int width,
                       SourceLocation here) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle_bits(what, kind, bits, operand, width, here);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
inline T shuffle(T value, int source, int width = kWarpLanes,
                 SourceLocation here = SourceLocation::caller()) {
  return shuffle_value("shuffle", Shuffle::kIndex, value, source, width, here);
}
template <typename T>
inline T shuffle_xor(T value, int lane_mask, int width = kWarpLanes,
                     SourceLocation here = SourceLocation::caller()) {
  return shuffle_value("shuffle_xor", Shuffle::kXor, value, lane_mask, width, here);
}
template <typename T>
inline T shuffle_up(T value, int delta, int width = kWarpLanes,
                    SourceLocation here = SourceLocation::caller()) {
  return shuffle_value("shuffle_up", Shuffle::kUp, value, delta, width, here);
}
template <typename T>
inline T shuffle_down(T value, int delta, int width = kWarpLanes,
                      SourceLocation here = SourceLocation::caller()) {
  return shuffle_value("shuffle_down", Shuffle::kDown, value, delta, width, here);
}
uint32_t ballot(int condition, SourceLocation here = SourceLocation::caller());
uint32_t match_any(uint32_t value, SourceLocation here = SourceLocation::caller());
uint32_t warp_max_u32(uint32_t value, SourceLocation here = SourceLocation::caller());

int32_t atomic_add(int32_t* p, int32_t value, SourceLocation here = SourceLocation::caller());
uint32_t atomic_add(uint32_t* p, uint32_t value, SourceLocation here = SourceLocation::caller());
int64_t atomic_add(int64_t* p, int64_t value, SourceLocation here = SourceLocation::caller());
uint32_t atomic_max(uint32_t* p, uint32_t value, SourceLocation here = SourceLocation::caller());
uint32_t atomic_load(const uint32_t* p, SourceLocation here = SourceLocation::caller());
void fence_device(SourceLocation here = SourceLocation::caller());
// As the red instruction of floats: with subnormal numbers as zeros of their sign. It happens at
// once, and counts as a read and a write.
void reduce_add(float* p, const float (&v)[4], SourceLocation here);

// 2^x; subnormal results are 0, as with .ftz.
inline float exp2_approx(float x) {
  const float y = __builtin_exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}

}  // namespace assay::simt
