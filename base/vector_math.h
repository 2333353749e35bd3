// Sixteen floats at a time, and the exponential, for the inner loops of the CPU ops.
//
// A vector is one AVX-512 register where available, otherwise two or four smaller ones
// (base/sixteen.h).
//
// exp_fast(x) and exp2_fast(x) are within 2 ulp (tests/base/test_vector_math.cpp) while the result
// is a normal float, and 0 below that. NaN stays NaN; the result at 0 is 1. exp_fast is
// infinite above 88.37; exp2_fast, which the softmaxes use, requires x < 127.5.
//
// Both work on float (in `#pragma omp simd` loops) and on f32x16. They are always inlined: a call
// takes and returns a vector of several registers through memory, five times slower with AVX2.
// Polynomials: minimax in relative error, 2^f = 1 + f p(f) on [-1/2, 1/2] and
// e^r = 1 + r + r^2 q(r) on [-ln 2 / 2, ln 2 / 2], error under 4e-9.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bf16.h"
#include "base/math.h"
#include "base/sixteen.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
#define ASSAY_AVX512_BF16 1
#else
#define ASSAY_AVX512_BF16 0
#endif

namespace assay {

using u16x16 = uint16_t __attribute__((vector_size(32)));

// Reductions in a fixed order: a sum over a vector has the same bits on every machine.
inline float horizontal_sum(f32x16 v) {
  float lane[kVector];
  std::memcpy(lane, &v, sizeof v);
  for (int width = kVector / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
inline float horizontal_max(f32x16 v) {
  float lane[kVector];
  std::memcpy(lane, &v, sizeof v);
  for (int width = kVector / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] < lane[i + width] ? lane[i + width] : lane[i];
  }
  return lane[0];
}

inline f32x16 broadcast(float x) {
  return f32x16{} + x;
}

inline u32x16 widen(u16x16 x) {
#if defined(__AVX512F__)
  // One instruction, where GCC 12 emits five. The maskz form avoids a warning from inside the plain
  // intrinsic.
  return std::bit_cast<u32x16>(_mm512_maskz_cvtepu16_epi32(0xFFFF, std::bit_cast<__m256i>(x)));
#else
  return u32x16::of([&](int i) {
    Halves part;
    std::memcpy(&part, reinterpret_cast<const char*>(&x) + sizeof part * size_t(i), sizeof part);
    return __builtin_convertvector(part, u32x16::Part);
  });
#endif
}

// Loads and stores need no alignment.
inline f32x16 load(const float* p) {
#if defined(__AVX512F__)
  f32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
#else
  return f32x16::from(p);
#endif
}
inline f32x16 load(const bf16* p) {
#if defined(__AVX512F__)
  u16x16 bits;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<f32x16>(widen(bits) << 16);
#else
  return f32x16::of([&](int i) {
    Halves bits;
    std::memcpy(&bits, p + i * kLanes, sizeof bits);
    return std::bit_cast<f32x16::Part>(__builtin_convertvector(bits, u32x16::Part) << 16);
  });
#endif
}
inline void store(float* p, const f32x16& v) {
#if defined(__AVX512F__)
  std::memcpy(p, &v, sizeof v);
#else
  v.to(p);
#endif
}
#if !ASSAY_AVX512_BF16
// The bf16 nearest to floats, even if two are; of floats' bits, for the store below. U: a vector.
template <typename U>
inline U rounded_to_bf16(U u) {
  const U nan = U((u & 0x7FFFFFFFu) > 0x7F800000u);
  const U rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  return (((u >> 16) | 0x40u) & nan) | (rounded & ~nan);
}
inline void store_bf16_bits(bf16* p, f32x16 v) {
#if defined(__AVX512F__)
  const u16x16 bits = __builtin_convertvector(rounded_to_bf16(std::bit_cast<u32x16>(v)), u16x16);
  std::memcpy(&p->bits, &bits, sizeof bits);
#else
  for (int i = 0; i < kParts; ++i) {
    const auto bits =
        __builtin_convertvector(rounded_to_bf16(std::bit_cast<u32x16::Part>(v.part[i])), Halves);
    std::memcpy(&p->bits + i * kLanes, &bits, sizeof bits);
  }
#endif
}
#endif
// Rounds to nearest even. The AVX-512 instruction treats subnormal floats as 0; nothing else
// differs from base/bf16.h.
inline void store(bf16* p, f32x16 v) {
#if ASSAY_AVX512_BF16
  const __m256bh rounded = _mm512_cvtneps_pbh(std::bit_cast<__m512>(v));
  std::memcpy(&p->bits, &rounded, sizeof rounded);
#else
  store_bf16_bits(p, v);
#endif
}

// Loads and stores of a whole vector (Whole), or of its first `count` lanes: a load zeroes the
// other lanes, a store leaves their memory alone. for_vectors calls f(i, Whole{}) for i = 0, 16,
// ..., and f(i, count) for a remainder.
using Whole = std::integral_constant<int, kVector>;

template <typename T>
inline f32x16 load(const T* p, Whole) {
  return load(p);
}
template <typename T>
inline f32x16 load(const T* p, int count) {
  T part[kVector] = {};
  for (int i = 0; i < count; ++i) part[i] = p[i];
  return load(part);
}
template <typename T>
inline void store(T* p, f32x16 v, Whole) {
  store(p, v);
}
template <typename T>
inline void store(T* p, f32x16 v, int count) {
  T part[kVector];
  store(part, v);
  for (int i = 0; i < count; ++i) p[i] = part[i];
}

template <typename F>
[[gnu::always_inline]] inline void for_vectors(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kVector <= n; i += kVector) f(i, Whole{});
  if (i < n) f(i, int(n - i));
}

namespace detail {

// Adding this constant leaves round-to-nearest(x) in the low bits, |x| < 2^22.
constexpr float kRoundMagic = 12582912.0f;

template <typename F>
using Integer = std::conditional_t<std::is_same_v<F, float>, uint32_t, u32x16>;

// p 2^n for magic = n + kRoundMagic, n in [-126, 128), p in [0.7, 1.42]. Unsigned, because the sum
// may wrap where the caller replaces the result.
template <typename F>
[[gnu::always_inline]] inline F scale_by_power(const F& p, const F& magic) {
  using I = Integer<F>;
  return p * std::bit_cast<F>(I((std::bit_cast<I>(magic) << 23) + 0x3F800000u));
}
#if !defined(__AVX512F__)
// Not by a copy of all parts, which goes through memory.
[[gnu::always_inline]] inline f32x16 scale_by_power(const f32x16& p, const f32x16& magic) {
  return f32x16::of([&](int i) {
    const auto bits = std::bit_cast<u32x16::Part>(magic.part[i]);
    return p.part[i] * std::bit_cast<f32x16::Part>((bits << 23) + 0x3F800000u);
  });
}
#endif

}  // namespace detail

template <typename F>
[[gnu::always_inline]] inline F exp2_fast(const F& x) {
  const F magic = x + detail::kRoundMagic;
  const F f = x - (magic - detail::kRoundMagic);
  F p = f * 0.000155946778f + 0.00134066434f;
  p = p * f + 0.00961769279f;
  p = p * f + 0.0555031039f;
  p = p * f + 0.240226522f;
  p = p * f + 0.693147242f;
  p = p * f + 1.0f;
  F y = detail::scale_by_power(p, magic);
  return select(x < -126.0f, F{}, y);
}

template <typename F>
[[gnu::always_inline]] inline F exp_fast(const F& x) {
  const F magic = x * kLog2E + detail::kRoundMagic;
  const F n = magic - detail::kRoundMagic;
  F r = x - n * 0.693145752f;  // ln 2 = 0.693145752 (16 bits: the product is exact) + 1.42860677e-6
  r = r - n * 1.42860677e-6f;
  F p = r * 0.00138146128f + 0.00836871006f;
  p = p * r + 0.041668389f;
  p = p * r + 0.166665211f;
  p = p * r + 0.49999994f;
  p = p * (r * r) + r + 1.0f;
  F y = detail::scale_by_power(p, magic);
  y = select(x < -87.33654f, F{}, y);
  return select(x > 88.37f, F{} + __builtin_inff(), y);
}

}  // namespace assay
