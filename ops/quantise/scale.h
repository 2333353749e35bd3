// From the amax of a block to its scale: the arithmetic of the quantisers, in fp32, in this order,
// by IEEE division, the same on every backend. M is the largest element, q is rounded to the code.
//
//   tensor   S = M / amax (for ue4m3 blocks 448 M / amax), at most the largest float    q = x S
//   fp32     s = M / amax_b, the same bound, or the power of two below; decode 1 / s    q = x s
//   e8m0     decode 2^k, the smallest >= amax_b / M                                     q = x 2^-k
//   ue4m3    c = ue4m3(amax_b S / M), decode c / S; c = 0: all codes are 0              q = x S / c
//
// amax 0: the scale is 1 (ue4m3: c = 0). amax not finite: the scale is NaN and all codes are 0, so
// that the decoded values are NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "base/small_float.h"
#include "ops/quantise_format.h"

namespace assay {

constexpr float kScaleNaN = std::bit_cast<float>(0x7FC00000u);
constexpr uint32_t kInfinityBits = 0x7F800000u;

// Bits that order magnitudes; every NaN has the same bits, above all others.
constexpr uint32_t magnitude_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu;
  return u > kInfinityBits ? 0x7FC00000u : u;
}

// Value of not_finite in the quantisers for a copy with this amax.
constexpr uint32_t not_finite_mark(uint32_t site, uint32_t amax_bits) {
  return 2 * site + (amax_bits > kInfinityBits ? 1 : 0);
}

constexpr float largest_element(ElementFormat element) {
  return element == ElementFormat::kE4M3   ? e4m3::kLargest
         : element == ElementFormat::kE5M2 ? e5m2::kLargest
                                           : e2m1::kLargest;
}

// The largest magnitude of (x multiply) / divide that is not beyond M: one place of a float above
// it, because M / amax rounds, and its product with amax again (test quantise_format).
constexpr float largest_scaled(ElementFormat element) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(largest_element(element)) + 1);
}

// M / amax for a finite amax.
constexpr float scale_for(float largest, float amax) {
  constexpr float kMost = std::bit_cast<float>(0x7F7FFFFFu);
  if (amax == 0) return 1.0f;
  const float s = largest / amax;
  return s < kMost ? s : kMost;
}

// Tensor scale S; 1 if the kind has none.
constexpr float tensor_scale(const QuantFormat& f, float amax) {
  if (!has_tensor_scale(f.scale)) return 1.0f;
  if (magnitude_bits(amax) >= kInfinityBits) return kScaleNaN;
  const float blocks = f.scale == ScaleKind::kTensor ? 1.0f : e4m3::kLargest;
  return scale_for(largest_element(f.element) * blocks, amax);
}

// The code is (x multiply) / divide, rounded; divide = 0: all codes are 0.
struct BlockScale {
  float multiply, divide;
  float decode;   // the stored scale, for fp32 scales
  uint32_t code;  // the stored scale, for 8-bit scales
};

constexpr BlockScale block_scale(const QuantFormat& f, float s, uint32_t amax_bits) {
  const float largest = largest_element(f.element), amax = std::bit_cast<float>(amax_bits);
  const int finite = amax_bits < kInfinityBits;
  if (f.scale == ScaleKind::kTensor) return {s, s == s ? 1.0f : 0.0f, 0, 0};
  if (has_float_scales(f.scale)) {
    if (!finite) return {0, 0, kScaleNaN, 0};
    float encode = scale_for(largest, amax);
    if (f.scale_rounding == ScaleRounding::kPowerOfTwo) {
      encode = std::bit_cast<float>(std::bit_cast<uint32_t>(encode) & 0xFF800000u);
    }
    return {encode, 1.0f, 1.0f / encode, 0};
  }
  if (f.scale == ScaleKind::k1x32) {
    if (!finite) return {0, 0, 0, 255};
    const uint32_t code = amax_bits == 0 ? 127 : e8m0::round_up(amax, largest).bits;
    const float inverse = std::bit_cast<float>(code == 254 ? 0x00400000u : (254 - code) << 23);
    return {inverse, 1.0f, 0, code};
  }
  if (!finite || s != s) return {0, 0, 0, e4m3::kNan};
  const uint32_t code = ue4m3::nearest(amax * s / largest);
  return {s, e4m3::decode(code), 0, code};
}

// Factor that decodes a code of the block, without the tensor scale.
constexpr float decode_factor(const QuantFormat& f, const BlockScale& scale) {
  if (f.scale == ScaleKind::kTensor) return 1.0f;
  if (has_float_scales(f.scale)) return scale.decode;
  return f.scale == ScaleKind::k1x32 ? float(e8m0::from_bits(scale.code))
                                     : e4m3::decode(scale.code);
}

}  // namespace assay
