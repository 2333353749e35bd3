// The small float formats as bits: fp8 and fp4 elements, and the two scale formats of one byte.
//
//   e4m3   largest 448, no infinity, one NaN
//   e5m2   largest 57344, infinity and NaN as in IEEE 754
//   e2m1   0 .5 1 1.5 2 3 4 6, no infinity, no NaN
//
// Nearest: rounds to nearest even and saturates. Values beyond the largest, infinities included,
// become the largest. NaN stays NaN (e5m2: the quiet 0x7E); in e2m1 it becomes +6.
//
// Stochastic: f is the fraction of a step by which |x| exceeds its neighbour towards zero, rounded
// to 16 bits (half up). x is rounded away from zero if f 2^16 + r >= 2^16, with r uniform in
// [0, 2^16). The mean of many roundings is x within 2^-17 steps.
//
// The sign is kept, also that of a zero. Conversion to float is exact. Codes grow with the
// magnitude, so one formula serves normal and subnormal numbers. Tested against independently made
// vectors for all 65536 bf16 values (tests/base/test_small_float.cpp).
#pragma once

#include <bit>
#include <cstdint>

namespace assay {

struct E4M3Layout {
  static constexpr int kMantissaBits = 3, kBias = 7;
  // kInfinity above every code: the format has none.
  static constexpr uint32_t kSign = 0x80, kNan = 0x7F, kInfinity = 0x100;
  static constexpr float kLargest = 448.0f;
};
struct E5M2Layout {
  static constexpr int kMantissaBits = 2, kBias = 15;
  static constexpr uint32_t kSign = 0x80, kNan = 0x7E, kInfinity = 0x7C;
  static constexpr float kLargest = 57344.0f;
};
struct E2M1Layout {
  static constexpr int kMantissaBits = 1, kBias = 1;
  static constexpr uint32_t kSign = 0x8, kNan = 0x7, kInfinity = 0x100;
  static constexpr float kLargest = 6.0f;
};

template <typename Layout>
struct SmallFloat : Layout {
  uint8_t bits = 0;  // e2m1: the low four bits

  SmallFloat() = default;
  explicit constexpr SmallFloat(float value) : bits(static_cast<uint8_t>(nearest(value))) {}
  constexpr operator float() const { return decode(bits); }

  static constexpr SmallFloat from_bits(uint32_t bits) {
    SmallFloat x;
    x.bits = static_cast<uint8_t>(bits);
    return x;
  }
  // random16 in [0, 65536).
  static constexpr SmallFloat stochastic(float value, uint32_t random16) {
    return from_bits(drawn(value, random16));
  }

  // The same with codes as 32-bit words, so that compilers vectorise loops over them.
  static constexpr uint32_t nearest(float value) {
    const Parts p = parts(value);
    const int s = p.shift < 31 ? p.shift : 31;
    const uint32_t steps =
        (p.significand + (uint32_t{1} << (s - 1)) - 1 + (p.significand >> s & 1)) >> s;
    return p.code(steps);
  }
  static constexpr uint32_t drawn(float value, uint32_t random16) {
    const Parts p = parts(value);
    const int s = p.shift < 47 ? p.shift - 16 : 31;  // 16 bits of the fraction stay
    const uint32_t sixteenths = (p.significand + (uint32_t{1} << (s - 1))) >> s;
    return p.code((sixteenths + (random16 & 0xFFFFu)) >> 16);
  }
  static constexpr float decode(uint32_t code) {
    const uint32_t magnitude = code & (Layout::kSign - 1);
    const uint32_t sign = (code & Layout::kSign) / Layout::kSign << 31;
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * kSubnormalStep;
    const uint32_t normal = (magnitude << (23 - Layout::kMantissaBits)) +
                            (static_cast<uint32_t>(127 - Layout::kBias) << 23);
    uint32_t u = magnitude >> Layout::kMantissaBits ? normal : std::bit_cast<uint32_t>(subnormal);
    if (magnitude >= Layout::kInfinity) {
      u = magnitude == Layout::kInfinity ? 0x7F800000u : 0x7FC00000u;
    } else if (kHasNan && magnitude >= Layout::kNan) {
      u = 0x7FC00000u;
    }
    return std::bit_cast<float>(sign | u);
  }

 private:
  static constexpr bool kHasNan = Layout::kSign == 0x80;
  // The float exponent field of the smallest normal number.
  static constexpr uint32_t kLowest = 128 - Layout::kBias;
  static constexpr float kSubnormalStep =
      std::bit_cast<float>((kLowest - Layout::kMantissaBits) << 23);

  // |value| = significand 2^-shift steps; a step is the distance between neighbouring codes.
  struct Parts {
    uint32_t significand, first, sign, nan;
    int shift;
    constexpr uint32_t code(uint32_t steps) const {
      return sign | (nan ? Layout::kNan : first + steps);
    }
  };
  static constexpr Parts parts(float value) {
    constexpr uint32_t kLargestBits = std::bit_cast<uint32_t>(Layout::kLargest);
    const uint32_t whole = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = whole & 0x7FFFFFFFu;
    const uint32_t u = magnitude < kLargestBits ? magnitude : kLargestBits;
    const uint32_t field = u >> 23;
    const uint32_t raised = field > kLowest ? field : kLowest;
    const uint32_t nan = magnitude > 0x7F800000u;
    const uint32_t sign = nan && !kHasNan ? 0 : (whole >> 31) * Layout::kSign;
    return {.significand = (u & 0x7FFFFFu) | 0x800000u,
            .first = (raised - kLowest) << Layout::kMantissaBits,
            .sign = sign,
            .nan = nan,
            .shift = static_cast<int>(23 - Layout::kMantissaBits + raised - field)};
  }
};

using e4m3 = SmallFloat<E4M3Layout>;
using e5m2 = SmallFloat<E5M2Layout>;
using e2m1 = SmallFloat<E2M1Layout>;
static_assert(sizeof(e4m3) == 1 && sizeof(e2m1) == 1);

// An unsigned scale: the e4m3 values >= 0. Negative values become 0; NaN stays NaN.
struct ue4m3 {
  uint8_t bits = 0;

  ue4m3() = default;
  explicit constexpr ue4m3(float value) : bits(static_cast<uint8_t>(nearest(value))) {}
  constexpr operator float() const { return e4m3::decode(bits & 0x7Fu); }

  static constexpr uint32_t nearest(float value) {
    const uint32_t code = e4m3::nearest(value) & 0xFFu;
    return (code & 0x7Fu) == 0x7Fu ? 0x7Fu : code < 0x80u ? code : 0u;
  }
};

// A power-of-two scale: 2^(bits - 127); 255 is NaN.
struct e8m0 {
  uint8_t bits = 127;

  constexpr operator float() const {
    return std::bit_cast<float>(bits == 255 ? 0x7FC00000u
                                : bits == 0 ? 0x00400000u
                                            : static_cast<uint32_t>(bits) << 23);
  }
  static constexpr e8m0 from_bits(uint32_t bits) {
    e8m0 x;
    x.bits = static_cast<uint8_t>(bits);
    return x;
  }
  // The smallest power of two >= value / largest (largest >= 2), saturating at both ends: infinity
  // becomes 2^127, zero and subnormal values become 2^-127. NaN and negative values become NaN.
  // Compares mantissas, so no division rounds.
  static constexpr e8m0 round_up(float value, float largest) {
    const uint32_t u = std::bit_cast<uint32_t>(value), v = std::bit_cast<uint32_t>(largest);
    if (u > 0x7F800000u && u != 0x80000000u) return from_bits(255);
    if (u == 0x7F800000u) return from_bits(254);
    const int more = (u & 0x7FFFFFu) > (v & 0x7FFFFFu);
    const int code = static_cast<int>(u >> 23 & 0xFFu) - static_cast<int>(v >> 23) + more + 127;
    return from_bits(static_cast<uint32_t>(code < 0 ? 0 : code > 254 ? 254 : code));
  }
};

}  // namespace assay
