#include <sched.h>

#include "base/cores.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("processes share the cores of one mask on one machine") {
  // Two ranks with the cores of `taskset -c 0-7`, one with a mask of its own, two on another
  // machine that are bound to half of it each.
  const std::vector<CoreMask> all = {
      {0, 0x00FF}, {0, 0xFF00}, {0, 0x00FF}, {3, 0x00FF}, {3, 0xFF00}};
  const int64_t expected[] = {2, 1, 2, 1, 1};
  for (size_t i = 0; i < all.size(); ++i) REQUIRE(processes_on_cores_of(all, i) == expected[i]);
}

TEST_CASE("a process that is bound to other cores has another mask") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const CoreMask all = core_mask(7);
  REQUIRE((all.machine == 7 && all.cores == core_mask(7).cores));
  if (CPU_COUNT(&before) < 2) return;  // there is no smaller mask
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const CoreMask bound = core_mask(7);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  REQUIRE(bound.cores != all.cores);
  REQUIRE(core_mask(7).cores == all.cores);
}

}  // namespace assay
