#include "tests/catch.h"
#include "tests/comm/group_cases.h"
#include "tests/comm/thread_group.h"

namespace assay {

TEST_CASE("ranks as threads") {
  for (const int ranks : {1, 2, 3, 5}) {
    INFO(ranks << " ranks");
    const std::vector<std::string> failed = run_ranks(ranks, [](Group& group) {
      check_sizes(group);
      check_sequences(group);
      check_same_calls(group);
    });
    REQUIRE(failed == std::vector<std::string>(size_t(ranks)));
  }
}

TEST_CASE("a rank that fails does not leave the others waiting") {
  const std::vector<std::string> failed = run_ranks(3, [](Group& group) {
    if (group.rank() == 1) throw UserError("as planned", "none");
    check_sum(group, 1, 10);
  });
  REQUIRE(failed == std::vector<std::string>{"rank 1 has left", "as planned", "rank 1 has left"});
}

}  // namespace assay
