// ops/quantise/round_to_format.h against the codes of base/small_float.h: all bf16, floats near the
// numbers of a format and the midpoints between them, and random floats. Where ops/quantise/scale.h
// takes the amax of a block to.
#include <bit>
#include <cstdint>

#include "base/bf16.h"
#include "base/random.h"
#include "base/small_float.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"
#include "tests/catch.h"

namespace assay {
namespace {

template <typename Element>
float magnitude_of(uint32_t code) {
  return Element::decode(code & (Element::kSign - 1));
}

// NaN, which callers exclude, has no code to compare with and must become the largest number.
template <typename Element>
int64_t differences(float x, uint32_t draw) {
  if (x != x) return element_grid<Element>().nearest(x) != Element::kLargest;
  return (element_grid<Element>().nearest(x) != magnitude_of<Element>(Element::nearest(x))) +
         (element_grid<Element>().drawn(x, draw) != magnitude_of<Element>(Element::drawn(x, draw)));
}

template <typename Element>
int64_t differences_of_bf16() {
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float x = bf16::from_bits(uint16_t(i));
    for (const uint32_t draw : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu, i * 40503u & 0xFFFFu}) {
      wrong += differences<Element>(x, draw);
    }
  }
  return wrong;
}

// Floats around every number of the format and every midpoint between two, then random floats.
template <typename Element>
int64_t differences_at_ties() {
  RandomSequence random({3, stream_id("ties"), 0});
  int64_t wrong = 0;
  for (uint32_t code = 0; Element::decode(code) < Element::kLargest; ++code) {
    const float low = Element::decode(code), high = Element::decode(code + 1);
    for (const float x : {low, 0.5f * (low + high), high}) {
      for (uint32_t i = 0; i < 64; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x) + i;
        wrong += differences<Element>(std::bit_cast<float>(bits > 32 ? bits - 32 : bits),
                                      random.next() & 0xFFFFu);
      }
    }
  }
  for (int i = 0; i < 1 << 18; ++i) {
    const float x = std::bit_cast<float>(random.next());
    wrong += differences<Element>(x, random.next() & 0xFFFFu);
  }
  return wrong;
}

// The largest value that a scale made from an amax takes this amax to.
float largest_of_scaled(const QuantFormat& f) {
  RandomSequence random({3, stream_id("amax"), 0});
  float most = 0;
  for (int i = 0; i < 1 << 18; ++i) {
    const float amax = std::bit_cast<float>(random.next() % kInfinityBits);
    const BlockScale scale = block_scale(f, tensor_scale(f, amax), magnitude_bits(amax));
    const float v = amax * scale.multiply / scale.divide;
    if (most < v) most = v;
  }
  return most;
}

}  // namespace

TEST_CASE("rounding to an element's grid is what its code decodes to, for every bf16") {
  REQUIRE(differences_of_bf16<e4m3>() == 0);
  REQUIRE(differences_of_bf16<e5m2>() == 0);
  REQUIRE(differences_of_bf16<e2m1>() == 0);
}

TEST_CASE("the same for floats around the format's numbers and midpoints, and at random") {
  REQUIRE(differences_at_ties<e4m3>() == 0);
  REQUIRE(differences_at_ties<e5m2>() == 0);
  REQUIRE(differences_at_ties<e2m1>() == 0);
}

TEST_CASE("the rounding of a float scale takes amax one place beyond the largest number, no more") {
  using enum ElementFormat;
  for (const ElementFormat element : {kE4M3, kE5M2, kE2M1}) {
    for (const ScaleKind kind : {ScaleKind::kTensor, ScaleKind::k1x128}) {
      REQUIRE(largest_of_scaled({element, kind}) == largest_scaled(element));
    }
    REQUIRE(largest_of_scaled({element, ScaleKind::k1x32}) <= largest_element(element));
  }
}

}  // namespace assay
