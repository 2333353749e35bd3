#include "base/random.h"
#include "tests/catch.h"

namespace assay {

// Known-answer vectors published with Philox (Random123 kat_vectors, philox4x32-10).
TEST_CASE("philox4x32-10 known answers") {
  using Words = std::array<uint32_t, 4>;
  REQUIRE((philox4x32({0, 0, 0, 0}, {0, 0}) ==
           Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const uint32_t f = 0xffffffffu;
  REQUIRE((philox4x32({f, f, f, f}, {f, f}) ==
           Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  REQUIRE((philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                      {0xa4093822u, 0x299f31d0u}) ==
           Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST_CASE("uniform numbers are neither 0 nor 1") {
  const uint32_t f = 0xffffffffu;
  for (const double x :
       {uniform_open(0), uniform_open(f), uniform_open(0, 0), uniform_open(f, f)}) {
    REQUIRE((x > 0 && x < 1));
  }
  REQUIRE(uniform_open(f, f) > uniform_open(f));
}

TEST_CASE("normal numbers have mean 0, variance 1 and depend on every part of the key") {
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random_normal({1, stream_id("w"), 0}, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  REQUIRE(std::abs(sum / n) < 4 / std::sqrt(double(n)));
  REQUIRE(std::abs(squares / n - 1) < 4 * std::sqrt(2.0 / n));
  const double base = random_normal({1, stream_id("w"), 0}, 5);
  REQUIRE(base != random_normal({2, stream_id("w"), 0}, 5));
  REQUIRE(base != random_normal({1, stream_id("v"), 0}, 5));
  REQUIRE(base != random_normal({1, stream_id("w"), 1}, 5));
  REQUIRE(base != random_normal({1, stream_id("w"), 0}, 4));
}

}  // namespace assay
