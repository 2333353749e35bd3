#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/math.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("quotients and multiples round up") {
  for (int a = 0; a < 40; ++a) {
    for (int b = 1; b < 10; ++b) {
      const int q = ceil_div(a, b);
      REQUIRE(q * b >= a);
      REQUIRE((q - 1) * b < a);
      REQUIRE(round_up(a, b) == q * b);
    }
  }
  REQUIRE(ceil_div(int64_t{1} << 40, 3) == 366503875926);
  REQUIRE(round_up((size_t{1} << 63) - 7, 256) == size_t{1} << 63);
}

TEST_CASE("they have the type of the sum, at compile time too") {
  static_assert(std::is_same_v<decltype(ceil_div(7, 2)), int>);
  static_assert(std::is_same_v<decltype(ceil_div(int64_t{7}, 2)), int64_t>);
  static_assert(std::is_same_v<decltype(round_up(7u, 2)), unsigned>);
  static_assert(std::is_same_v<decltype(round_up(size_t{7}, 2)), size_t>);
  static_assert(ceil_div(7, 2) == 4 && round_up(7, 2) == 8);
}

}  // namespace assay
