// bfloat16 as 16 bits with the two roundings the program uses.
//
//   nearest even   bits = (f + 0x7FFF + lsb(f >> 16)) >> 16       NaN stays NaN (quiet bit set)
//   stochastic     bits = (f + r) >> 16, r uniform in [0, 2^16)   mean of many roundings is f
//
// Conversion to float is exact. Arithmetic is done in float; bf16 is a storage type.
#pragma once

#include <bit>
#include <cstdint>

namespace assay {

struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float value) : bits(round_nearest_even(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

  static constexpr bf16 from_bits(uint16_t bits) {
    bf16 x;
    x.bits = bits;
    return x;
  }

  static constexpr uint16_t round_nearest_even(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    const bool nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<uint16_t>(nan ? ((u >> 16) | 0x40u) : rounded);
  }

  // random16 in [0, 65536). Infinities and NaN are kept; a finite value may round up to infinity
  // only above the largest bf16.
  static constexpr bf16 stochastic(float value, uint32_t random16) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7F800000u) == 0x7F800000u) return from_bits(round_nearest_even(value));
    return from_bits(static_cast<uint16_t>((u + (random16 & 0xFFFFu)) >> 16));
  }
};

static_assert(sizeof(bf16) == 2);

// Stores x, rounded to the type of `to`. In loops, `to = bf16(x)` goes through a temporary object,
// and GCC then leaves the loop scalar.
constexpr void round_to(bf16& to, float x) {
  to.bits = bf16::round_nearest_even(x);
}
constexpr void round_to(float& to, float x) {
  to = x;
}

}  // namespace assay
