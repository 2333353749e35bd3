// The calls of a group of ranks over MPI: run it under mpirun with any number of processes. A
// failure on one rank ends the job.
#include <time.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/check.h"
#include "comm/launch.h"
#include "tests/comm/group_cases.h"

namespace assay {
namespace {

int run() {
  const std::unique_ptr<World> joined = join_world();
  World& world = *joined;
  int looks = 0;
  {
    const auto everybody = world.group(0, [&] { ++looks; });
    expect(everybody->size() == world.size() && everybody->rank() == world.rank(), "the world", 0);
    check_sizes(*everybody);
    check_sequences(*everybody);
    check_same_calls(*everybody);
    // Two groups, of the even and of the odd ranks.
    const auto half = world.group(world.rank() % 2);
    expect(half->size() == (world.size() + (world.rank() % 2 == 0 ? 1 : 0)) / 2 &&
               half->rank() == world.rank() / 2,
           "a half", 0);
    check_sizes(*half);
    // A rank that waits looks around.
    if (world.rank() == 0) {
      const timespec late{0, 200'000'000};
      nanosleep(&late, nullptr);
    }
    const int before = looks;
    check_sum(*everybody, 1, 1);
    expect(world.size() == 1 || world.rank() == 0 || looks > before, "looks while it waits", 0);
  }
  expect(world.node_ranks() == world.size() && world.node_rank() == world.rank(), "one node", 0);
  if (world.rank() == 0) std::printf("group of %d: ok\n", world.size());
  return 0;
}

// Rank 1 leaves by an exception while the others wait for it: the job must end, with its message.
int run_failing() {
  const std::unique_ptr<World> joined = join_world();
  World& world = *joined;
  const auto everybody = world.group(0);
  if (world.rank() == 1) throw UserError("rank 1 fails as planned", "none");
  check_sum(*everybody, 1, 10);
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  try {
    const bool failing = argc > 1 && std::string(argv[1]) == "--one-rank-fails";
    return failing ? assay::run_failing() : assay::run();
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
