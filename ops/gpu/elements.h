// Loads elements of T as floats and stores floats as T, N adjacent elements in 16-byte accesses,
// rounded once when stored.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "cuda/gpu.h"

namespace assay::gpu {

// Elements that a thread of an elementwise kernel takes at once: 16 bytes of bf16, 32 of float.
inline constexpr int kVector = 8;

// p must be aligned to N * sizeof(T) or to 16 bytes, whichever is less.
template <int N, typename T>
GPU_DEVICE void load_floats(float (&x)[N], const T* p) {
  constexpr int kAccess = N * sizeof(T) > 16 ? 16 / int(sizeof(T)) : N;
  for (int k = 0; k < N; k += kAccess) {
    const auto v = load_vec<kAccess>(p + k);
    for (int e = 0; e < kAccess; ++e) x[k + e] = float(v[e]);
  }
}

// One instruction rounds a pair.
template <int N>
GPU_DEVICE void store_floats(bf16* p, const float (&x)[N]) {
  static_assert(N == 2 || N == 4 || N == 8);
  Vec<uint32_t, N / 2> v;
  for (int k = 0; k < N / 2; ++k) v[k] = pack_bf16(x[2 * k], x[2 * k + 1]);
  store_whole<N / 2>(reinterpret_cast<uint32_t*>(p), v);
}
template <int N>
GPU_DEVICE void store_floats(float* p, const float (&x)[N]) {
  constexpr int kAccess = N > 4 ? 4 : N;
  for (int k = 0; k < N; k += kAccess) {
    Vec<float, kAccess> v;
    for (int e = 0; e < kAccess; ++e) v[e] = x[k + e];
    store_whole<kAccess>(p + k, v);
  }
}
GPU_DEVICE void store_floats(bf16* p, const float (&x)[1]) {
  p->bits = bf16::round_nearest_even(x[0]);
}

// True if rows of `width` elements from `p` on can be read kVector elements at a time. On the host,
// before a launch.
template <typename T>
bool in_vectors(const T* p, int64_t width) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && width % kVector == 0;
}

}  // namespace assay::gpu
