// A group of ranks over NCCL's interface: run it under mpirun. The library is the fake one
// (fake_nccl.cpp), the GPU the SIMT emulator; ASSAY_NCCL_LIBRARY names the library.
//   test_nccl_group                the cases of every transport, splits, lanes, a recording
//   test_nccl_group --fault NAME   a fault on one rank, from the list below
//   test_nccl_group --old          a library that is too old, on rank 1 only
//   test_nccl_group --list         the names of faults
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/seconds_since.h"
#include "comm/launch.h"
#include "comm/nccl_group.h"
#include "cuda/lane.h"
#include "cuda/simt/context.h"
#include "cuda/simt/stream.h"
#include "cuda/transfer.h"
#include "tests/comm/group_cases.h"
#include "tests/comm/lane_case.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr simt::Pace kPaces[] = {simt::Pace::kPrompt, simt::Pace::kLate, simt::Pace::kLaneFirst,
                                 simt::Pace::kLaneLast};

// With both edges the numbers are right in every pace; without one they are wrong in some.
void check_lanes(Group& group, Exec main, Exec lane) {
  for (const bool recorded : {false, true}) {
    for (const Edge missing : {Edge::kNone, Edge::kGatherBehindMade, Edge::kReadBehindGather}) {
      int right = 0, paces = 0;
      for (const simt::Pace pace : kPaces) {
        simt::set_pace(pace);
        right += gathers_beside_main(group, main, lane, missing, recorded) ? 1 : 0;
        paces += 1;
      }
      simt::set_pace(simt::Pace::kPrompt);
      expect(missing == Edge::kNone ? right == paces : right < paces, "edges of a lane",
             int(missing));
    }
  }
}

int run() {
  const std::unique_ptr<World> joined = join_world();
  World& world = *joined;
  const auto host = world.group(0);
  int looks = 0;
  {
    const auto group = join_nccl(*host, {.look = [&] { ++looks; }, .unended = {}});
    expect(group->size() == world.size() && group->rank() == world.rank(), "the group", 0);
    gpu::Context context = simt::make_context();
    context.watch = group.get();
    const Exec main{.gpu = &context};
    const Lane lane(main);
    const auto half = group->split(world.rank() % 2);
    expect(half->size() == (world.size() + (world.rank() % 2 == 0 ? 1 : 0)) / 2 &&
               half->rank() == world.rank() / 2,
           "a half", 0);
    for (const simt::Pace pace : kPaces) {
      simt::set_pace(pace);
      check_sizes(*group, lane.exec());
      check_sizes(*half, lane.exec());
      check_sequences(*group, lane.exec(), 250);
    }
    simt::set_pace(simt::Pace::kPrompt);
    const auto quarter = half->split(half->rank() % 2);
    check_sizes(*quarter, main);
    check_lanes(*group, main, lane.exec());
    check_same_calls(*group, *host);
    // A rank that waits looks around.
    if (world.rank() == 0) {
      const timespec late{0, 200'000'000};
      nanosleep(&late, nullptr);
    }
    const int before = looks;
    check_sum(*group, 1, 1, lane.exec());
    expect(world.size() == 1 || world.rank() == 0 || looks > before, "looks while it waits", 0);
  }
  host->all_gather({}, std::vector<char>(size_t(host->size())).data(), "", 1);
  if (world.rank() == 0) std::printf("group of %d: ok\n", world.size());
  return 0;
}

struct Planned {
  const char* name;
  const char* plan;     // ASSAY_FAKE_NCCL_FAULT
  const char* message;  // of the faulty rank; the others end by their look
  double most_seconds;
};
constexpr const char* kLost = "a rank is lost";
constexpr double kPatience = 1.5;  // of a look, as a control that hears nothing from a rank
constexpr Planned kFaults[] = {
    {"id_fails", "0 ncclGetUniqueId 1 fails", "on rank 0 of 3: ncclGetUniqueId: unhandled", 1},
    {"init_fails", "1 ncclCommInitRankConfig 1 fails",
     "NCCL on rank 1 of 3: ncclCommInitRankConfig failed (call 1 of its group): unhandled system "
     "error (planned fault in call 1 of ncclCommInitRankConfig)",
     1},
    {"init_stays", "1 ncclCommInitRankConfig 1 stays", kLost, 3},
    {"split_fails", "2 ncclCommSplit 1 fails", "ncclCommSplit failed (call 2 of its group)", 1},
    {"split_stays", "2 ncclCommSplit 1 stays", kLost, 3},
    {"gather_fails", "0 ncclAllGather 3 fails", "ncclAllGather failed (call 9 of its group)", 1},
    {"gather_stays", "1 ncclAllGather 3 stays", kLost, 3},
    {"gather_hangs", "1 ncclAllGather 3 hangs", kLost, 3},
    {"gather_remote", "2 ncclAllGather 3 remote",
     "NCCL on rank 2 of 3: ncclAllReduce was the latest call when a failure showed (call 11 of its "
     "group): remote process exited (planned fault in call 3 of ncclAllGather)",
     1},
    {"sum_remote", "0 ncclAllReduce 2 remote",
     "ncclAllReduce was the latest call when a failure showed (call 8 of its group)", 1},
    {"send_fails", "1 ncclSend 3 fails", "ncclSend failed (call 7 of its group)", 1},
    {"end_fails", "1 ncclGroupEnd 2 fails", "ncclGroupEnd failed (call 7 of its group)", 1},
    {"end_hangs", "1 ncclGroupEnd 2 hangs", kLost, 3},
    {"abort_blocks", "1 ncclAllReduce 2 abort-blocks",
     "remote process exited (planned fault in call 2 of ncclAllReduce); NCCL could not be ended",
     6.5},
    {"finalize_stays", "1 ncclCommFinalize 1 stays", "", 6.5},
};

// Calls as a run makes them, until something throws. What they use is left as it is: memory of the
// GPU cannot be freed behind an operation that does not end.
struct Groups {
  std::unique_ptr<NcclGroup> all, part;
};
void calls_of_a_run(Group& host, Groups& groups, gpu::Context& context,
                    const NcclCallbacks& callbacks) {
  groups.all = join_nccl(host, callbacks);
  NcclGroup* const group = groups.all.get();
  context.watch = group;
  groups.part = group->split(0);
  auto* const lane = new Lane({.gpu = &context});
  auto *const all = new Buffer(lane->exec(), Row(64)), *from = new Buffer(lane->exec(), Row(64));
  for (int round = 0; round < 3; ++round) {
    group->all_gather(lane->exec(), all->data(), from->data(), 8);
    group->all_to_all(lane->exec(), all->data(), from->data(), 8);
    group->sum_integers(lane->exec(), {reinterpret_cast<int64_t*>(all->data()), {8}});
    wait(lane->exec());
  }
}

int run_fault(const Planned& fault) {
  setenv("ASSAY_FAKE_NCCL_FAULT", fault.plan, 1);
  const int faulty = fault.plan[0] - '0';
  const std::unique_ptr<World> joined = join_world();
  World& world = *joined;
  const auto host = world.group(0);
  const auto begin = Clock::now();
  gpu::Context context = simt::make_context();
  Groups groups;
  const auto look = [&] {
    if (seconds_since(begin) > kPatience) throw UserError(kLost, "none");
  };
  std::string message;
  int unended = 0;
  try {
    calls_of_a_run(*host, groups, context, {look, [&](const std::exception_ptr&) { ++unended; }});
  } catch (const UserError& error) {
    message = error.what();
  }
  groups.part.reset();  // at once where the family has ended
  groups.all.reset();
  const double seconds = seconds_since(begin);
  std::printf("rank %d: %.1f s: %s\n", world.rank(), seconds, message.c_str());
  const bool is_faulty = world.rank() == faulty;
  const bool all_get_it = std::string(fault.name) == "id_fails";
  const std::string want = is_faulty || all_get_it    ? fault.message
                           : fault.message[0] == '\0' ? ""
                                                      : kLost;
  expect(want.empty() ? message.empty() : message.find(want) != std::string::npos,
         "the message of a fault", 0);
  const bool blocks = is_faulty && std::string(fault.name) == "abort_blocks";
  expect(unended == (blocks ? 1 : 0), "calls of unended()", 0);
  expect(seconds < (is_faulty ? fault.most_seconds : std::max(3.0, fault.most_seconds)),
         "seconds until a fault is over", 0);
  // All of them got here: MPI itself is well.
  host->all_gather({}, std::vector<char>(size_t(host->size())).data(), "", 1);
  if (world.rank() == 0) std::printf("fault %s: ok\n", fault.name);
  return 0;
}

int run_old() {
  const std::unique_ptr<World> joined = join_world();
  if (joined->rank() == 1) setenv("ASSAY_FAKE_NCCL_VERSION", "22602", 1);
  const auto host = joined->group(0);
  std::string message;
  try {
    join_nccl(*host);
  } catch (const UserError& error) {
    message = error.what();
  }
  expect(message.find("NCCL cannot be used on rank 1 of 2: ") == 0 &&
             message.find(" is NCCL 2.26.2, 2.27.0 or later is needed") != std::string::npos,
         message.c_str(), 0);
  std::printf("old: ok\n");
  return 0;
}

int list() {
  for (const Planned& fault : kFaults) std::printf("%s\n", fault.name);
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);  // all ranks have the emulator's GPU
  try {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "--list") return assay::list();
    if (mode == "--old") return assay::run_old();
    if (mode.empty()) return assay::run();
    for (const assay::Planned& fault : assay::kFaults) {
      if (mode == "--fault" && argc > 2 && argv[2] == std::string(fault.name)) {
        return assay::run_fault(fault);
      }
    }
    std::fprintf(stderr, "usage: test_nccl_group [--fault NAME | --old | --list]\n");
    return 1;
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
