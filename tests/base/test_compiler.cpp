#include <cstdint>
#include <vector>

#include "tests/catch.h"

namespace assay {

namespace {

[[gnu::noinline]] int64_t last(const std::vector<int64_t>& values) {
  return values.back();
}

}  // namespace

// Without -mmove-max=128 -mstore-max=128, g++ 12.2 -O2 -march=x86-64-v4 turns this list into four
// twos.
TEST_CASE("a constant list keeps its zeros") {
  REQUIRE(last({2, 2, 0, 0}) == 0);
  REQUIRE(last({7, 7, 7, 7, 0, 0, 0, 0}) == 0);
}

}  // namespace assay
