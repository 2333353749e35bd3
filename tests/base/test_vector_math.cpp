#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/vector_math.h"
#include "tests/catch.h"

namespace assay {
namespace {

// |got - want| in units of the last place of want.
double ulps(float got, double want) {
  int exponent;
  std::frexp(want, &exponent);
  return std::abs(double(got) - want) / std::ldexp(1.0, exponent - 24);
}

template <typename Fast, typename Exact>
double worst_ulps(double low, double high, Fast fast, Exact exact) {
  RandomSequence random({7, stream_id("vector_math")});
  double worst = 0;
  for (int i = 0; i < 1 << 20; ++i) {
    // Half of the points are close to 0, where the result is about 1.
    const double t = random.uniform();
    const float x =
        i % 2 == 0 ? float(low + (high - low) * t) : float((t - 0.5) * std::exp2(-(i % 29)));
    worst = std::max(worst, ulps(fast(x), exact(double(x))));
  }
  return worst;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("exp_fast and exp2_fast are within 2 ulp wherever the result is normal") {
  const double e = worst_ulps(
      -87.33, 88.36, [](float x) { return exp_fast(x); }, [](double x) { return std::exp(x); });
  const double two = worst_ulps(
      -125.99, 127.49, [](float x) { return exp2_fast(x); }, [](double x) { return std::exp2(x); });
  INFO("exp " << e << " ulp, exp2 " << two << " ulp");
  REQUIRE(e < 2.0);
  REQUIRE(two < 2.0);
  REQUIRE(e > 0.3);  // proves that the measure detects errors
}

TEST_CASE("the exponential at the ends of its range") {
  REQUIRE(exp_fast(0.0f) == 1.0f);
  REQUIRE(exp2_fast(0.0f) == 1.0f);
  for (const float x : {-kInf, -1e30f, -88.0f}) REQUIRE(exp_fast(x) == 0.0f);
  for (const float x : {-kInf, -1e30f, -127.0f}) REQUIRE(exp2_fast(x) == 0.0f);
  for (const float x : {kInf, 1e30f, 89.0f}) REQUIRE(exp_fast(x) == kInf);
  REQUIRE(std::isnan(exp_fast(NAN)));
  REQUIRE(std::isnan(exp2_fast(NAN)));
  REQUIRE(exp_fast(-87.3f) > FLT_MIN);
}

TEST_CASE("vector functions give the same bits as lane by lane") {
  RandomSequence random({8, stream_id("vector_lanes")});
  for (int round = 0; round < 1000; ++round) {
    float x[kVector], e[kVector], two[kVector];
    for (float& value : x) value = float(200 * random.uniform() - 100);
    store(e, exp_fast(load(x)));
    store(two, exp2_fast(load(x)));
    for (int i = 0; i < kVector; ++i) {
      REQUIRE(e[i] == exp_fast(x[i]));
      REQUIRE(two[i] == exp2_fast(x[i]));
    }
  }
}

TEST_CASE("vector loads and stores of bf16 round as bf16 does") {
  RandomSequence random({9, stream_id("vector_bf16")});
  for (int round = 0; round < 4000; ++round) {
    float x[kVector], back[kVector];
    for (float& value : x) {
      value = std::bit_cast<float>(random.next());
      if (std::abs(value) < FLT_MIN) value = 0;
    }
    x[round % kVector] = round % 3 == 0 ? kInf : std::bit_cast<float>(0x7F7FFFFFu - round);
    bf16 rounded[kVector];
    store(rounded, load(x));
    store(back, load(rounded));
    for (int i = 0; i < kVector; ++i) {
      const bf16 want(x[i]);
      if (std::isnan(x[i])) {
        REQUIRE(std::isnan(float(rounded[i])));
      } else {
        REQUIRE(rounded[i].bits == want.bits);
        REQUIRE(back[i] == float(want));
      }
    }
  }
}

TEST_CASE("comparisons, choices and bits of sixteen lanes") {
  float x[kVector], y[kVector];
  uint32_t bits[kVector];
  for (int i = 0; i < kVector; ++i) {
    x[i] = float(i % 5) - 2;
    y[i] = float(i % 3) - 1;
    bits[i] = 0x80010203u * uint32_t(i + 1);
  }
  x[9] = std::numeric_limits<float>::quiet_NaN();
  const f32x16 a = load(x), b = load(y);
  u32x16 u;
  std::memcpy(&u, bits, sizeof u);
  const i32x16 less = a<b, at_most = a <= b, greater = a> 1.0f, at_least = a >= b;
  const u32x16 mixed = ((u >> 7) | 0x40u) & ~(u << 3);
  const f32x16 chosen = select(a < b, b, a);
  for (int i = 0; i < kVector; ++i) {
    CAPTURE(i);
    REQUIRE(less[i] == (x[i] < y[i] ? -1 : 0));
    REQUIRE(at_most[i] == (x[i] <= y[i] ? -1 : 0));
    REQUIRE(greater[i] == (x[i] > 1.0f ? -1 : 0));
    REQUIRE(at_least[i] == (x[i] >= y[i] ? -1 : 0));
    REQUIRE(mixed[i] == (((bits[i] >> 7) | 0x40u) & ~(bits[i] << 3)));
    REQUIRE(std::bit_cast<uint32_t>(float(chosen[i])) ==
            std::bit_cast<uint32_t>(x[i] < y[i] ? y[i] : x[i]));
    REQUIRE((i == 9 || (-a - 2.0f * b)[i] == -x[i] - 2.0f * y[i]));
  }
}

TEST_CASE("horizontal sum and maximum") {
  float x[kVector];
  for (int i = 0; i < kVector; ++i) x[i] = float((i * 7) % kVector) - 3.0f;
  REQUIRE(horizontal_sum(load(x)) == 120.0f - 48.0f);
  REQUIRE(horizontal_max(load(x)) == 12.0f);
  REQUIRE(horizontal_max(broadcast(-kInf)) == -kInf);
}

}  // namespace assay
