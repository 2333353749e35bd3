// Sixteen lanes of 32 bits: f32x16, i32x16, u32x16.
//
// With AVX-512 they are vectors of the compiler, one register each. Elsewhere they are arrays of
// the CPU's own vectors: g++ 12 keeps wider ones in memory and compares them lane by lane, which
// makes attention ten times slower with AVX2.
//
//   x < y, x <= y, x > y, x >= y    i32x16: -1 where it holds, else 0
//   select(mask, x, y)              x where it holds, else y; of floats too, with a bool
#pragma once

#include <cstdint>
#include <cstring>

namespace assay {

constexpr int kVector = 16;

#if defined(__AVX512F__)

using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));

inline f32x16 select(i32x16 mask, f32x16 x, f32x16 y) {
  return mask ? x : y;
}

#else

#if defined(__AVX__)
constexpr int kLanes = 8;  // of the CPU's vectors
#else
constexpr int kLanes = 4;
#endif
constexpr int kParts = kVector / kLanes;
using Halves = uint16_t __attribute__((vector_size(2 * kLanes)));  // the bits of a part's bf16

template <typename E>
struct PartOf;
template <>
struct PartOf<float> {
  using Type = float __attribute__((vector_size(4 * kLanes)));
};
template <>
struct PartOf<int32_t> {
  using Type = int32_t __attribute__((vector_size(4 * kLanes)));
};
template <>
struct PartOf<uint32_t> {
  using Type = uint32_t __attribute__((vector_size(4 * kLanes)));
};

template <typename E>
struct Sixteen {
  using Part = typename PartOf<E>::Type;
  using Mask = Sixteen<int32_t>;
  Part part[kParts];

  // f(i): part i of the result.
  template <typename F>
  [[gnu::always_inline]] static Sixteen of(F&& f) {
    Sixteen to;
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) to.part[i] = f(i);
    return to;
  }
  [[gnu::always_inline]] static Sixteen all(E e) {
    return of([&](int) { return Part{} + e; });
  }

  // Part by part: a copy as a whole goes through memory in smaller pieces.
  [[gnu::always_inline]] static Sixteen from(const E* p) {
    return of([&](int i) {
      Part x;
      std::memcpy(&x, p + i * kLanes, sizeof x);
      return x;
    });
  }
  [[gnu::always_inline]] void to(E* p) const {
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) std::memcpy(p + i * kLanes, &part[i], sizeof part[i]);
  }

  [[gnu::always_inline]] E operator[](int lane) const {
    return part[lane / kLanes][lane % kLanes];
  }
  [[gnu::always_inline]] Sixteen operator-() const {
    return of([&](int i) { return -part[i]; });
  }
  [[gnu::always_inline]] Sixteen operator~() const {
    return of([&](int i) { return ~part[i]; });
  }

#define ASSAY_SIXTEEN(OP)                                                                 \
  [[gnu::always_inline]] friend Sixteen operator OP(const Sixteen& a, const Sixteen& b) { \
    return of([&](int i) { return a.part[i] OP b.part[i]; });                             \
  }                                                                                       \
  [[gnu::always_inline]] friend Sixteen operator OP(const Sixteen& a, E b) {              \
    return of([&](int i) { return a.part[i] OP b; });                                     \
  }                                                                                       \
  [[gnu::always_inline]] friend Sixteen operator OP(E a, const Sixteen& b) {              \
    return of([&](int i) { return a OP b.part[i]; });                                     \
  }                                                                                       \
  template <typename B>                                                                   \
  [[gnu::always_inline]] Sixteen& operator OP##=(const B& b) {                            \
    return *this = *this OP b;                                                            \
  }
  ASSAY_SIXTEEN(+)
  ASSAY_SIXTEEN(-)
  ASSAY_SIXTEEN(*)
  ASSAY_SIXTEEN(/)
  ASSAY_SIXTEEN(&)
  ASSAY_SIXTEEN(|)
#undef ASSAY_SIXTEEN
  [[gnu::always_inline]] friend Sixteen operator<<(const Sixteen& a, int bits) {
    return of([&](int i) { return a.part[i] << bits; });
  }
  [[gnu::always_inline]] friend Sixteen operator>>(const Sixteen& a, int bits) {
    return of([&](int i) { return a.part[i] >> bits; });
  }

#define ASSAY_SIXTEEN(OP)                                                              \
  [[gnu::always_inline]] friend Mask operator OP(const Sixteen& a, const Sixteen& b) { \
    return Mask::of([&](int i) { return a.part[i] OP b.part[i]; });                    \
  }                                                                                    \
  [[gnu::always_inline]] friend Mask operator OP(const Sixteen& a, E b) {              \
    return a OP all(b);                                                                \
  }                                                                                    \
  [[gnu::always_inline]] friend Mask operator OP(E a, const Sixteen& b) {              \
    return all(a) OP b;                                                                \
  }
  ASSAY_SIXTEEN(<)
  ASSAY_SIXTEEN(<=)
  ASSAY_SIXTEEN(>)
  ASSAY_SIXTEEN(>=)
#undef ASSAY_SIXTEEN
};

using f32x16 = Sixteen<float>;
using i32x16 = Sixteen<int32_t>;
using u32x16 = Sixteen<uint32_t>;

[[gnu::always_inline]] inline f32x16 select(const i32x16& mask, const f32x16& x, const f32x16& y) {
  return f32x16::of([&](int i) { return mask.part[i] ? x.part[i] : y.part[i]; });
}

#endif

inline float select(bool mask, float x, float y) {
  return mask ? x : y;
}

}  // namespace assay
