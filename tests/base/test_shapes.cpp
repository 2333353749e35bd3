#include <array>

#include "base/check.h"
#include "base/shapes.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("shapes are printed with their names, an empty view's too") {
  float memory[24] = {};
  const View<float, 3> weight{memory, {2, 3, 4}};
  const View<const float, 1> rows{nullptr, {int64_t{1} << 40}};
  const View<float, 2> absent;
  REQUIRE(shapes("weight", weight, "rows", rows, "add", absent) ==
          "weight (2, 3, 4), rows (1099511627776), add (0, 0)");
  REQUIRE(shapes("codes", std::array{int64_t{5}, int64_t{64}}) == "codes (5, 64)");
}

TEST_CASE("the shapes of a check that holds are not evaluated") {
  int printed = 0;
  const auto text = [&] {
    ++printed;
    return shapes("x", std::array{int64_t{1}});
  };
  CHECK(printed == 0, "%s", text().c_str());
  REQUIRE(printed == 0);
}

}  // namespace assay
