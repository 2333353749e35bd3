#include <stdexcept>

#include "base/read_failed.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("who goes on without what is damaged does not go on without what could not be read") {
  bool called = false;
  REQUIRE(!problem_of([&] { called = true; }));
  REQUIRE(called);
  const auto problem = problem_of([] { throw UserError("a is damaged", "write it again"); });
  REQUIRE(problem);
  REQUIRE(std::string(problem->what()) == "a is damaged");
  REQUIRE(problem->hint() == "write it again");
  REQUIRE_THROWS_AS(problem_of([] { throw ReadFailed("a cannot be read", "look"); }), ReadFailed);
  REQUIRE_THROWS_AS(problem_of([] { throw std::logic_error("a bug"); }), std::logic_error);
}

}  // namespace assay
