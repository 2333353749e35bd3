#include <chrono>
#include <thread>

#include "comm/agree.h"
#include "tests/catch.h"
#include "tests/comm/group_cases.h"
#include "tests/comm/thread_group.h"

namespace assay {

TEST_CASE("ranks as threads") {
  for (const int ranks : {1, 2, 3, 5}) {
    INFO(ranks << " ranks");
    const std::vector<std::string> failed = run_ranks(ranks, [](Group& group) {
      check_sizes(group, {}, size_t{1} << 16);  // threads copy any size in one piece
      check_sequences(group);
      check_same_calls(group);
    });
    REQUIRE(failed == std::vector<std::string>(size_t(ranks)));
  }
}

TEST_CASE("the time in calls is that of waiting for the others") {
  constexpr auto kLate = std::chrono::milliseconds(300);
  const std::vector<std::string> failed = run_ranks(3, [&](Group& group) {
    gather(group, 0);  // all are here
    const auto before = group.time_in_calls();
    if (group.rank() == 1) std::this_thread::sleep_for(kLate);
    gather(group, 0);
    const auto waited = group.time_in_calls() - before;
    if (group.rank() == 1 ? waited < kLate / 2 : waited > kLate / 2) return;
    throw UserError(group.rank() == 1 ? "the late rank waited" : "an early rank did not wait", "");
  });
  REQUIRE(failed == std::vector<std::string>(3));
}

TEST_CASE("a rank that fails does not leave the others waiting") {
  const std::vector<std::string> failed = run_ranks(3, [](Group& group) {
    if (group.rank() == 1) throw UserError("as planned", "none");
    check_sum(group, 1, 10);
  });
  REQUIRE(failed == std::vector<std::string>{"rank 1 has left", "as planned", "rank 1 has left"});
}

}  // namespace assay
