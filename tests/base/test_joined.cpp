#include <cstdint>
#include <set>
#include <vector>

#include "base/joined.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("texts and whole numbers are joined with what is between them") {
  REQUIRE(joined(std::vector<std::string>{}, ", ").empty());
  REQUIRE(joined(std::vector<std::string>{"moe"}, ", ") == "moe");
  REQUIRE(joined(std::vector<const char*>{"bf16", "fp8"}, "") == "bf16fp8");
  REQUIRE(joined(std::vector<std::string>{"", "a", "", "b"}, ", ") == "a, , b");
  REQUIRE(joined(std::set<int64_t>{400, -200}, ", ") == "-200, 400");
  const int32_t layers[] = {0, 11};
  REQUIRE(joined(layers, "+") == "0+11");
}

}  // namespace assay
