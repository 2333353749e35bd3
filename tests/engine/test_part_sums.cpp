// Parts that one process adds one after the other (engine/part_sums.h) have the sum of ranks that
// add what all of them hold (ops/tree_sum.h), to the bit.
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "engine/part_sums.h"
#include "ops/tree_sum.h"
#include "tests/catch.h"

namespace assay::test_part_sums {

namespace {

constexpr int64_t kValues = 1031;

}  // namespace

TEST_CASE("part sums: parts on one process and parts on ranks are the same tree") {
  const Exec on{.threads = 2};
  for (int64_t parts = 1; parts <= 16; ++parts) {
    MemoryPlan plan;
    View<float, 1> gradients;
    plan.add(Section::kGradients, "gradients", gradients, {kValues});
    PartSums sums(parts);
    sums.plan(plan);
    plan.allocate();
    sums.bind(plan);

    std::vector<float> all(size_t(parts * kValues)), of_ranks(kValues);
    RandomSequence random({7, stream_id("part sums"), uint32_t(parts)});
    for (float& x : all)
      x = std::ldexp(float(random.below(1u << 24)) - 0x1p23f, int(random.below(18)));
    for (int64_t part = 0; part < parts; ++part) {
      std::memcpy(gradients.data, all.data() + part * kValues, gradients.bytes());
      sums.end_part(on, part);
    }
    tree_sum(on, {.to = {of_ranks.data(), {kValues}}, .from = {all.data(), {parts, kValues}}});
    CAPTURE(parts);
    REQUIRE(std::memcmp(gradients.data, of_ranks.data(), gradients.bytes()) == 0);
  }
}

}  // namespace assay::test_part_sums
