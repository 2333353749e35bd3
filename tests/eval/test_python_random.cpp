// Expected values from Python 3: random.Random(seed).getrandbits(32), .randrange, .shuffle,
// .sample.
#include "eval/python_random.h"
#include "tests/catch.h"

namespace assay::test_python_random {
namespace {

using Numbers = std::vector<int64_t>;

TEST_CASE("32-bit words equal Python's") {
  PythonRandom random(1337);
  for (const uint32_t word : {2653228291u, 3975144315u, 2290358181u, 3048911309u}) {
    REQUIRE(random.word() == word);
  }
  PythonRandom zero(0);
  for (const uint32_t word : {3626764237u, 1654615998u, 3255389356u}) {
    REQUIRE(zero.word() == word);
  }
  for (const uint32_t draw : {911u, 430u, 41u}) REQUIRE(zero.below(1000) == draw);
  PythonRandom far(5);
  for (int i = 0; i < 1300; ++i) far.word();
  REQUIRE(far.word() == 162109303u);  // from the third block of 624
}

TEST_CASE("shuffles equal Python's") {
  REQUIRE(PythonRandom(1337).shuffled(12) == Numbers{6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9});
  REQUIRE(PythonRandom(1).shuffled(1) == Numbers{0});
  REQUIRE(PythonRandom(1).shuffled(0).empty());
}

TEST_CASE("samples equal Python's, from a list and by rejection") {
  REQUIRE(PythonRandom(1234).sample(31, 10) == Numbers{30, 24, 14, 3, 0, 2, 18, 1, 21, 25});
  REQUIRE(PythonRandom(1235).sample(2375, 10) ==
          Numbers{1739, 2193, 1925, 1602, 610, 1429, 1775, 872, 404, 1684});
  REQUIRE(PythonRandom(1236).sample(229, 3) == Numbers{136, 122, 189});
  // For ten samples, a population of 85 is the largest that Python copies to a list.
  REQUIRE(PythonRandom(7).sample(85, 10) == Numbers{41, 19, 50, 6, 9, 68, 12, 46, 74, 7});
  REQUIRE(PythonRandom(7).sample(86, 10) == Numbers{41, 19, 50, 83, 6, 9, 68, 12, 46, 74});
  REQUIRE(PythonRandom(7).sample(0, 0).empty());
}

}  // namespace
}  // namespace assay::test_python_random
