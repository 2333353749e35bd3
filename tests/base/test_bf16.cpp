#include <bit>
#include <cmath>
#include <limits>

#include "base/bf16.h"
#include "base/random.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("bf16 to float and back is the identity for all 65536 values") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 x = bf16::from_bits(static_cast<uint16_t>(bits));
    const float f = x;
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(bf16(f))));
    } else if (bf16(f).bits != bits) {
      FAIL("bits " << bits << " became " << bf16(f).bits);
    }
  }
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
  REQUIRE(bf16(1.0f).bits == 0x3F80);
  REQUIRE(bf16(1.0f + 0x1p-8f).bits == 0x3F80);            // tie, even below
  REQUIRE(bf16(1.0f + 0x1p-7f + 0x1p-8f).bits == 0x3F82);  // tie, even above
  REQUIRE(bf16(1.0f + 0x1p-8f + 0x1p-20f).bits == 0x3F81);
  REQUIRE(bf16(std::numeric_limits<float>::max()).bits == 0x7F80);
  REQUIRE(bf16(-std::numeric_limits<float>::infinity()).bits == 0xFF80);
  REQUIRE(bf16(0x1p-140f).bits == 0x0000);  // half of the smallest subnormal rounds to even
}

TEST_CASE("NaN stays NaN under stochastic rounding, whichever bits are cut off and drawn") {
  for (uint32_t i = 0; i < 40; ++i) {
    const float nan = std::bit_cast<float>((i % 2 << 31) | 0x7F800000u | (1u << (i / 2)));
    CAPTURE(i);
    for (const uint32_t drawn : {0u, 1u, 0x8000u, 0xFFFFu}) {
      REQUIRE(std::isnan(float(bf16::stochastic(nan, drawn))));
    }
  }
}

TEST_CASE("stochastic rounding is unbiased and hits only the two neighbours") {
  const float x = 1.0f + 0.3f * 0x1p-7f;
  double sum = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const float y = bf16::stochastic(x, random_word({7, stream_id("sr"), 0}, uint64_t(i)) >> 16);
    REQUIRE((y == 1.0f || y == 1.0f + 0x1p-7f));
    sum += y;
  }
  REQUIRE(std::abs(sum / n - x) < 5 * 0x1p-7 * std::sqrt(0.21 / n) + 0x1p-23);
}

}  // namespace assay
