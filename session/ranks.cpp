#include "session/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cores.h"
#include "comm/last_words.h"
#include "comm/launch.h"
#include "comm/rank_lost.h"
#include "cuda/context.h"
#include "engine/config/paths.h"

namespace assay {

namespace {

int exit_code_of(const RankLost& lost) {
  return lost.gave_up() ? 1 : kRankLostExit;
}

}  // namespace

std::unique_ptr<Ranks> Ranks::join() {
  // One process needs no MPI, and under Open MPI a second command of its script could not join.
  if (launched_processes() == 0 || launched_alone()) return nullptr;
  std::unique_ptr<World> world = join_world();
  if (world->size() == 1) return nullptr;
  return std::unique_ptr<Ranks>(new Ranks(std::move(world)));
}

Ranks::Ranks(std::unique_ptr<World> world)
    : world_(std::move(world)), group_(make_group(0, CallOrder::Of::kAll)) {
  const std::vector<CoresOfProcess> all = gather(*group_, cores_of_process(node()));
  cores_ = share_of_cores(all, size_t(rank()));
  std::set<int64_t> machines;
  for (const CoresOfProcess& one : all) machines.insert(one.machine);
  nodes_ = int64_t(machines.size());
}

// The groups first: their calls tell the control.
Ranks::~Ranks() {
  parts_.clear();
  group_.reset();
}

std::unique_ptr<Group> Ranks::make_group(int colour, CallOrder::Of of) {
  std::unique_ptr<Group> group = world_->group(colour, [this] { end_if_lost(); });
  count_calls(*group, of);
  return group;
}

void Ranks::count_calls(Group& group, CallOrder::Of of) {
  group.tell_calls([this, of](uint64_t) {
    calls_.begin(of);
    tell();
  });
}

Group& Ranks::part(int colour, CallOrder::Of of) {
  parts_.push_back(make_group(colour, of));
  return *parts_.back();
}

void let_nccl_share_gpus() {
  constexpr int kAddOnly = 0;  // what the user has set stays
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", kAddOnly);
  setenv("NCCL_MAX_CTAS", "2", kAddOnly);  // the kernels of all ranks must fit on the GPU together
  setenv("NCCL_NVLS_ENABLE", "0", kAddOnly);
}

std::unique_ptr<NcclGroup> Ranks::gpu_group(gpu::Context& context) {
  const auto look = [this] {
    if (control_) control_->require_all_there();
  };
  const auto unended = [this](const std::exception_ptr& failure) { end_by(failure); };
  if (control_) {
    control_->calls_are_queued([this](const RankLost& lost) {
      begin_end();
      if (lost.rank() != rank()) say(lost);
      end_after_loss(*world_, lost.rank(), exit_code_of(lost));
    });
  }
  std::unique_ptr<NcclGroup> group = join_nccl(*group_, {look, unended});
  count_calls(*group, CallOrder::Of::kAll);
  context.watch = group.get();
  return group;
}

std::unique_ptr<NcclGroup> Ranks::gpu_part(NcclGroup& whole, int colour, CallOrder::Of of) {
  std::unique_ptr<NcclGroup> part = whole.split(colour);
  count_calls(*part, of);
  return part;
}

bool Ranks::share_gpus(const gpu::DeviceFacts& mine, bool share) {
  const std::vector<std::string> all = gather_texts(group(), mine.uuid);
  gpu_rank_ = int(std::find(all.begin(), all.end(), mine.uuid) - all.begin());
  for (size_t r = 0; r < all.size(); ++r) {
    const auto same = std::find(all.begin() + ptrdiff_t(r) + 1, all.end(), all[r]);
    if (same == all.end()) continue;
    if (share) return true;
    throw UserError(
        strprintf("ranks %zu and %zu have the same GPU; %d ranks on this machine see %d GPU%s", r,
                  size_t(same - all.begin()), node_ranks(), mine.devices,
                  mine.devices == 1 ? "" : "s"),
        "start one rank a GPU, or give --device cpu; --share-gpu lets several use one, for tests");
  }
  return false;
}

void Ranks::watch(const Watch& settings) {
  goes_on_ = settings.goes_on;
  const Control::Times times{.beat_s = std::min(1.0, settings.silence_s / 5),
                             .silence_s = settings.silence_s,
                             .stuck_s = settings.stuck_s};
  control_ = std::make_unique<Control>(*world_, times, process_name(), settings.folder);
  tell();
}

void Ranks::doing(const char* what, int64_t step, Control::Pace pace) {
  what_ = what;
  step_ = step;
  pace_ = pace;
  tell();
}

void Ranks::while_doing(const char* what, const std::function<void()>& work) {
  const char* const before = what_;
  const Control::Pace pace = pace_;
  doing(what, step_);
  work();
  doing(before, step_, pace);
}

void Ranks::tell() {
  if (control_) control_->doing(what_, step_, calls_.value(), pace_);
}

namespace {

constexpr size_t kMostText = 4096;

void print_error(const std::string& why, const std::string& hint) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", one_line(why, kMostText).c_str(),
               one_line(as_installed(hint), kMostText).c_str());
}

// MPI's end waits for all ranks, and one that is stopped there is watched by nobody. The launcher
// ends all of them when one exits so: the first rank, or the second if the first is stopped.
void end_within_limit(int rank) {
  static constexpr std::chrono::seconds kMost{30}, kBetween{2};
  std::thread([rank] {
    std::this_thread::sleep_for(kMost + std::min(rank, 2) * kBetween);
    if (rank < 2) {
      print_error(strprintf("the run has ended, but MPI has not within %d s: a rank hangs in "
                            "MPI_Finalize, or was stopped there",
                            int(kMost.count())),
                  "nothing is lost: all ranks had finished their work");
    }
    _exit(1);
  }).detach();
}

}  // namespace

int Ranks::run(const std::function<int()>& work) {
  try {
    const int code = work();
    std::signal(SIGUSR1, SIG_IGN);
    // The launcher ends all when the first one exits with another code than 0.
    std::fflush(stdout);
    if (control_) control_->finish();
    end_within_limit(rank());
    return code;
  } catch (...) {
    end_by(std::current_exception());
  }
}

void Ranks::end_by(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const RankLost& lost) {
    lose(lost);
  } catch (const UserError& error) {
    fail(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    fail("out of memory", "use a smaller run.micro_batch");
  } catch (const std::exception& error) {
    fail(error.what(), kLooksLikeABug);
  }
}

// MPI still has the buffers of a call that others have begun, and the control's letters move it
// on: an exception that frees them would let it write to memory that is gone.
void Ranks::end_if_lost() {
  if (!control_) return;
  try {
    control_->require_all_there();
  } catch (const RankLost& lost) {
    std::error_code ignored;
    if (!left_.empty()) std::filesystem::remove(left_, ignored);
    lose(lost);
  }
}

void Ranks::lose(const RankLost& lost) {
  begin_end();
  say(lost);
  end_after_loss(*world_, lost.rank(), exit_code_of(lost));
}

void Ranks::begin_end() {
  while (ending_.test_and_set()) pause();
}

// Looking for the last checkpoint may hang on a disk that hangs: the error is said before.
void Ranks::say(const RankLost& lost) const {
  const bool speaks_for_first = lost.rank() == 0 && rank() == 1 && !lost.gave_up();
  if (first() || speaks_for_first) {
    std::fprintf(stderr, "error: %s\n", one_line(lost.what(), kMostText).c_str());
    std::string hint = lost.hint();
    try {
      if (!lost.gave_up() && goes_on_) hint += "; " + goes_on_(step_);
    } catch (const std::exception&) {  // the run's files cannot be read
    }
    std::fprintf(stderr, "hint: %s\n", one_line(as_installed(hint), kMostText).c_str());
  }
}

// The first rank prints what failed there; what failed elsewhere it hears of, and prints that. It
// ends the launch, when the others have written what they have to.
void Ranks::fail(const std::string& why, const std::string& hint) {
  begin_end();
  if (control_) control_->give_up(why, hint);
  if (first()) print_error(why, hint);
  end_after_loss(*world_, std::max(1, rank()), 1);
}

std::string process_name() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) return strprintf("pid %d", int(getpid()));
  return strprintf("%s, pid %d", host, int(getpid()));
}

int64_t cores_of_rank(const Ranks* ranks) {
  return ranks == nullptr ? usable_cores() : ranks->cores();
}

}  // namespace assay
