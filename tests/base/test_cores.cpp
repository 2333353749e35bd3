#include "base/cores.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("processes share the cores of one mask on one machine") {
  const auto bound = [](int64_t machine, int from, int to) {
    CoreMask mask{.machine = machine, .cores = {}};
    for (int core = from; core < to; ++core) CPU_SET(core, &mask.cores);
    return mask;
  };
  // Two ranks with the eight cores of `taskset -c 0-7`, one with a mask of its own, two on another
  // machine that are bound to half of it each.
  const std::vector<CoreMask> all = {bound(0, 0, 8), bound(0, 8, 16), bound(0, 0, 8),
                                     bound(3, 0, 8), bound(3, 8, 16)};
  const int64_t expected[] = {2, 1, 2, 1, 1};
  for (size_t i = 0; i < all.size(); ++i) REQUIRE(processes_on_cores_of(all, i) == expected[i]);
}

TEST_CASE("a mask has the cores that a process may use") {
  const CoreMask mask = core_mask(7);
  REQUIRE(mask.machine == 7);
  // OpenMP may have bound this thread to some of them.
  REQUIRE((CPU_COUNT(&mask.cores) >= 1 && CPU_COUNT(&mask.cores) <= usable_cores()));
}

}  // namespace assay
