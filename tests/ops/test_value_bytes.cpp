// tests/ops/value_bytes.h: padding is found, and no byte of a value is taken for it.
#include <cstdint>

#include "ops/carry_sum.h"
#include "tests/catch.h"
#include "tests/ops/value_bytes.h"

namespace assay {
namespace {

struct FloatBeforePadding {
  void* p = nullptr;
  float scale = 1;
  int64_t n = 0;
  bool flag = false;
};

TEST_CASE("the bytes of values and of padding are told apart", "[ops]") {
  static_assert(member_count<FloatBeforePadding>() == 4);
  const auto holds = value_bytes<FloatBeforePadding>();
  for (size_t at = 0; at < holds.size(); ++at) {
    INFO("byte " << at);
    REQUIRE(holds[at] == (at < 12 || (at >= 16 && at <= 24)));
  }
}

TEST_CASE("an array of structs holds values throughout", "[ops]") {
  const auto holds = value_bytes<CarrySum<float>>();
  const size_t carried = offsetof(CarrySum<float>, carried);
  for (size_t at = 0; at < holds.size(); ++at) {
    INFO("byte " << at);
    REQUIRE(holds[at] == (at < carried + sizeof(int)));
  }
}

}  // namespace
}  // namespace assay
