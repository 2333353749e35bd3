// NCCL itself on a GPU: joining, splitting, the cases of every transport, a lane, a recorded
// exchange, the end by abort. Needs no MPI: the ranks are processes that this one makes by fork, on
// one GPU. One rank runs with any NCCL that we use; more need NCCL 2.30 or later, which lets ranks
// share a GPU.
//   nccl_check [RANKS]      1 to 8, 1 if none is given
// Exits 1 if something fails, 77 if this machine has no NCCL that we use; one that
// ASSAY_NCCL_LIBRARY names must be usable.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/seconds_since.h"
#include "comm/nccl_group.h"
#include "cuda/device.h"
#include "cuda/lane.h"
#include "cuda/transfer.h"
#include "tests/comm/group_cases.h"
#include "tests/comm/lane_case.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostRanks = 8;
constexpr size_t kMostBytes = 4096;  // of a message between the processes
constexpr int kMostSeconds = 100;    // of all; a hang ends there
constexpr double kPatience = 3;      // of a rank for one that does not come
constexpr int kNotHere = 77;         // as ctest's SKIP_RETURN_CODE

// Memory that the processes share.
struct Shared {
  pthread_barrier_t barrier;
  std::byte rows[kMostRanks][kMostBytes];
};

// The processes as a group of the host: enough to join NCCL, and to compare.
class Forked final : public Group {
 public:
  Forked(Shared* shared, int size, int rank) : Group(size, rank), shared_(shared) {}

 protected:
  void gather(Exec, void* all, const void* mine, size_t bytes) override {
    CHECK(bytes <= kMostBytes, "%zu bytes between processes", bytes);
    std::memcpy(shared_->rows[rank()], mine, bytes);
    pthread_barrier_wait(&shared_->barrier);
    for (int r = 0; r < size(); ++r) {
      std::memcpy(static_cast<std::byte*>(all) + size_t(r) * bytes, shared_->rows[r], bytes);
    }
    pthread_barrier_wait(&shared_->barrier);
  }
  [[noreturn]] void exchange_rows(Exec, void*, const void*, size_t) override { absent(); }
  [[noreturn]] void exchange_runs(Exec, const Exchange&) override { absent(); }
  [[noreturn]] void add_integers(Exec, View<int64_t, 1>) override { absent(); }

 private:
  [[noreturn]] static void absent() {
    std::fprintf(stderr, "the processes of this check gather, and nothing else\n");
    std::abort();
  }
  Shared* shared_;
};

// Prints how long each step took, on rank 0.
class Steps {
 public:
  explicit Steps(int rank) : rank_(rank) {}
  void done(const char* what) {
    if (rank_ == 0) std::printf("ok %-34s %7.3f s\n", what, seconds_since(begin_));
    std::fflush(stdout);
    begin_ = Clock::now();
  }

 private:
  int rank_;
  Clock::time_point begin_ = Clock::now();
};

// The others gather, and rank 0 does not come: they must end by their look, and the stream with
// them. A single rank ends by itself.
void check_end(Group& host, NcclGroup& group, Exec lane, bool& lost) {
  const auto begin = Clock::now();
  bool thrown = false;
  auto all = std::make_unique<Buffer>(lane, Row(8 * size_t(group.size())));
  auto own = std::make_unique<Buffer>(lane, Row(8));
  wait(lane);
  if (group.rank() > 0) {
    lost = true;
    try {
      group.all_gather(lane, all->data(), own->data(), 8);
      wait(lane);
    } catch (const UserError&) {
      thrown = true;
    }
    expect(thrown, "a rank that does not come ends the wait", 0);
  }
  expect(group.abort(), "NCCL returns from its abort", 0);
  expect(seconds_since(begin) < kPatience + NcclGroup::kMostAbortSeconds, "in time", 0);
  thrown = false;
  try {
    group.all_gather(lane, all->data(), own->data(), 8);
  } catch (const UserError&) {
    thrown = true;
  }
  expect(thrown, "a call behind the end is refused", 0);
  lane.gpu->memory->wait(*lane.gpu);  // the kernel of the gather has left the stream
  host.all_gather({}, Row(size_t(host.size())).data(), "", 1);
}

void check(Shared* shared, int size, int rank) {
  Forked host(shared, size, rank);
  Steps steps(rank);
  const auto device = gpu::open_device();
  if (rank == 0) {
    std::printf("%s, NCCL %s, %d ranks\n", device->facts().name.c_str(), nccl_version().c_str(),
                size);
  }
  bool lost = false;
  Clock::time_point lost_since = {};
  const auto look = [&] {
    if (!lost) return;
    if (lost_since == Clock::time_point()) lost_since = Clock::now();
    if (seconds_since(lost_since) > kPatience) throw UserError("rank 0 did not come", "none");
  };
  steps.done("open the GPU");
  const auto group = join_nccl(host, {.look = look, .unended = {}});
  steps.done("join");
  const auto half = group->split(rank % 2);
  steps.done("split");

  gpu::Context context = *device->context();
  context.watch = group.get();
  const Exec main{.gpu = &context};
  const Lane lane(main);
  check_sizes(*group, main);
  check_sizes(*half, lane.exec());
  steps.done("sizes, on the main stream and a lane");
  check_sequences(*group, lane.exec(), 50);
  steps.done("50 random calls");
  const auto gathers = [&](bool recorded) {
    return gathers_beside_main(*group, main, lane.exec(), Edge::kNone, recorded);
  };
  expect(gathers(false), "gathers beside the main stream", 0);
  steps.done("gathers beside the main stream");
  expect(gathers(true), "the same, recorded", 0);
  steps.done("the same, recorded in a graph");
  check_same_calls(*group, host);
  check_end(host, *group, lane.exec(), lost);
  steps.done("abort");
}

bool library_is_named() {
  const char* const name = std::getenv("ASSAY_NCCL_LIBRARY");
  return name != nullptr && *name != '\0';
}

int run_rank(Shared* shared, int size, int rank) {
  alarm(kMostSeconds);  // ends this process without a word; the first one then says so
  const std::string& absent = nccl_problem();
  try {
    if (!absent.empty()) throw UserError("NCCL cannot be used: " + absent, kNcclHint);
    check(shared, size, rank);
    return 0;
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: rank %d: %s\nhint: %s\n", rank, error.what(),
                 error.hint().c_str());
    return absent.empty() || library_is_named() ? 1 : kNotHere;
  }
}

// The first process waits for the ranks, and ends them all when one fails.
int run(int size) {
  if (size > 1) {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("NCCL_MAX_CTAS", "2", 1);  // the kernels of all ranks must fit on the GPU together
    setenv("NCCL_NVLS_ENABLE", "0", 1);
  }
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "mmap of %zu bytes failed", sizeof(Shared));
  auto* const shared = static_cast<Shared*>(memory);
  pthread_barrierattr_t between_processes;
  pthread_barrierattr_init(&between_processes);
  pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &between_processes, unsigned(size));
  std::vector<pid_t> ranks;
  for (int r = 0; r < size; ++r) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork of rank %d failed", r);
    if (child == 0) std::_Exit(run_rank(shared, size, r));
    ranks.push_back(child);
  }
  int failed = 0, code = 0;
  for (int left = size; left > 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
      std::fprintf(stderr, "error: not done after %d s\n", kMostSeconds);
    } else if (WIFSIGNALED(status) && failed == 0) {
      std::fprintf(stderr, "error: process %d ended by signal %d\n", int(ended), WTERMSIG(status));
    }
    if (failed++ > 0) continue;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (const pid_t child : ranks) {
      if (child != ended) kill(child, SIGKILL);
    }
  }
  if (failed == 0) std::printf("nccl_check with %d ranks: ok\n", size);
  return code;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 || ranks < 1 || ranks > assay::kMostRanks) {
    std::fprintf(stderr,
                 "usage: nccl_check [RANKS]    1 to %d ranks on one GPU, 1 if none is given\n",
                 assay::kMostRanks);
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 1;
  }
  return assay::run(ranks);
}
