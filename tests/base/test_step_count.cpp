#include "base/check.h"
#include "base/step_count.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("a rounded coefficient gives as many whole steps as the exact one") {
  REQUIRE(whole_quotient(1000, 20, 20000) == 1);
  REQUIRE(whole_quotient(999, 20, 20000) == 0);
  REQUIRE(whole_quotient(7, 0, 1) == 0);
  REQUIRE(whole_quotient(3, 1e-300, 1) == 0);
  // 9536 steps of 524288 tokens of 1024524288 FLOPs: 5.12e18 is not exact in double.
  const double flops = 9536.0 * 524288.0 * 1024524288.0;
  const __int128 step = __int128(524288) * 1024524288;
  REQUIRE(whole_quotient(1, flops, step) == 9536);
  REQUIRE(whole_quotient(1, flops * (1 - 1e-15), step) == 9535);
  REQUIRE(whole_quotient(1, 1e30, __int128(1'000'000'000'000) * 1'000'000) == 1'000'000'000'000);
  REQUIRE_THROWS_AS(whole_quotient(1, 1e30, 1), UserError);
  REQUIRE_THROWS_AS(whole_quotient(int64_t{1} << 62, 1e30, 1), UserError);
}

TEST_CASE("fractions of steps round up, unless only the fraction's own rounding exceeds a step") {
  REQUIRE(fraction_of_steps(10, 0.2) == 2);
  REQUIRE(fraction_of_steps(11, 0.2) == 3);
  REQUIRE(fraction_of_steps(1000000, 1e-6) == 1);
  REQUIRE(fraction_of_steps(1000001, 1e-6) == 2);
  REQUIRE_THROWS_AS(fraction_of_steps(10, 1.01), UserError);
}

}  // namespace assay
