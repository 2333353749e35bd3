#include "base/suggest.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("edit distance counts letters and swaps") {
  REQUIRE(edit_distance("", "abc") == 3);
  REQUIRE(edit_distance("lr", "lr") == 0);
  REQUIRE(edit_distance("steps", "step") == 1);
  REQUIRE(edit_distance("ruoter", "router") == 1);
  REQUIRE(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest name is suggested only if it is close") {
  const std::vector<std::string> known = {"hidden", "layers", "heads", "kv_heads"};
  REQUIRE(nearest_name("hiden", known) == "hidden");
  REQUIRE(nearest_name("head", known) == "heads");
  REQUIRE(nearest_name("optimizer", known) == "");
  REQUIRE(nearest_name("x", {"lr"}) == "");
}

}  // namespace assay
