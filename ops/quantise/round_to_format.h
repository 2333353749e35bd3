// Rounds a float to a value of an element format without computing the code: to the float that the
// code of base/small_float.h decodes to, in float arithmetic only, which compilers vectorise.
//
// With 2^e the power of two at or below |x|, at least the smallest normal one, a step is 2^(e -
// mantissa bits).
//   nearest       |x| + 2^23 steps is a float whose last place is one step, so the addition rounds,
//                 half to even
//   stochastic    2^17 |x| / step is exact; its integer part, halved and rounded up, is |x| in
//                 units of 2^-16 steps
//
// Equal to small_float.h for all bf16 and more (tests/ops/test_element_grid.cpp). Returns
// magnitudes: the caller keeps the sign.
#pragma once

#include <bit>
#include <cstdint>

#include "base/small_float.h"
#include "ops/quantise_format.h"

namespace assay {

struct ElementGrid {
  uint32_t largest;   // bits of the largest number
  uint32_t lowest;    // bits of the smallest normal number
  uint32_t mantissa;  // number of mantissa bits, shifted to the exponent field of a float

  // Saturates; NaN becomes the largest number.
  constexpr float nearest(float x) const {
    const uint32_t u = clamped(x);
    const float many = std::bit_cast<float>(power_below(u) + (uint32_t{23} << 23) - mantissa);
    return std::bit_cast<float>(u) + many - many;
  }
  // random16 in [0, 65536).
  constexpr float drawn(float x, uint32_t random16) const {
    const uint32_t u = clamped(x);
    const uint32_t step = power_below(u) - mantissa;
    const float scale = std::bit_cast<float>((uint32_t{254 + 17} << 23) - step);  // 2^17 / step
    const int32_t halves = static_cast<int32_t>(std::bit_cast<float>(u) * scale);
    const int32_t steps = (((halves + 1) >> 1) + static_cast<int32_t>(random16)) >> 16;
    return static_cast<float>(steps) * std::bit_cast<float>(step);
  }

 private:
  constexpr uint32_t clamped(float x) const {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu;
    return magnitude < largest ? magnitude : largest;
  }
  constexpr uint32_t power_below(uint32_t magnitude) const {
    const uint32_t power = magnitude & 0x7F800000u;
    return power > lowest ? power : lowest;
  }
};

template <typename Element>
constexpr ElementGrid element_grid() {
  return {std::bit_cast<uint32_t>(Element::kLargest), uint32_t{128 - Element::kBias} << 23,
          uint32_t{Element::kMantissaBits} << 23};
}
constexpr ElementGrid element_grid(ElementFormat element) {
  return element == ElementFormat::kE4M3   ? element_grid<e4m3>()
         : element == ElementFormat::kE5M2 ? element_grid<e5m2>()
                                           : element_grid<e2m1>();
}

}  // namespace assay
