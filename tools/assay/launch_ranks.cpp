#include "tools/assay/launch_ranks.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/cores.h"
#include "comm/last_words.h"
#include "comm/launch.h"
#include "comm/layout.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/folder_lock.h"
#include "tools/assay/commands.h"
#include "tools/assay/mpirun.h"

namespace assay {

namespace {

// The step of a checkpoint's folder; 0 if there is none.
int64_t step_in(const std::optional<std::string>& folder) {
  return folder ? step_of(std::filesystem::path(*folder).filename().string()) : 0;
}

// The step of the newest checkpoint, by its name; 0 if there is none. A checkpoint gets its name
// when it is complete, and a mark when a launch that goes on from an earlier one finds it damaged.
int64_t newest_step(const std::string& run) {
  return run.empty() ? 0 : step_in(Checkpoints(run, 1, {}).newest_by_name());
}

// Of the run; `otherwise` before it has a configuration.
ParallelConfig parallel_of(const std::string& run, const ParallelConfig& otherwise) {
  const std::string file = run + "/config.yaml";
  return std::filesystem::exists(file) ? load_config(file).parallel : otherwise;
}

bool fits(const ParallelConfig& parallel, int64_t ranks) {
  const int64_t parts = std::max<int64_t>(1, parallel.batch_parts());
  return Layout::fits(parts, ranks) && ranks % std::max<int64_t>(1, parallel.expert_ranks) == 0;
}

std::string fitting_ranks(const ParallelConfig& parallel) {
  std::vector<int64_t> fitting;
  for (int64_t n = 1; n <= std::max<int64_t>(1, parallel.batch_parts()); ++n) {
    if (fits(parallel, n)) fitting.push_back(n);
  }
  std::string text;
  for (size_t i = 0; i < fitting.size(); ++i) {
    if (i > 0) text += i + 1 == fitting.size() ? " or " : ", ";
    text += std::to_string(fitting[i]);
  }
  return text + (fitting == std::vector<int64_t>{1} ? " rank" : " ranks");
}

// The largest number of ranks below `ranks` that can share the run's parts and experts.
int64_t fewer_ranks(const RankLaunch& launch, const ParallelConfig& parallel, int64_t ranks) {
  for (int64_t n = ranks - 1; n >= std::max<int64_t>(1, launch.min_ranks); --n) {
    if (fits(parallel, n)) return n;
  }
  return ranks;
}

// Whether the run in the folder is the same as before: --fresh makes its configuration anew.
class SameRun {
 public:
  explicit SameRun(const std::string& run) : file_(run + "/config.yaml"), before_(look()) {}
  bool still() const { return before_ && before_ == look(); }

 private:
  using Identity = std::tuple<ino_t, time_t, long>;
  std::optional<Identity> look() const {
    struct stat s;
    if (stat(file_.c_str(), &s) != 0) return std::nullopt;
    return Identity{s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
  }

  std::string file_;
  std::optional<Identity> before_;
};

std::string program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? std::string(path, size_t(length)) : "assay";
}

void print_error(const std::string& error, const std::string& hint) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", error.c_str(), hint.c_str());
}

// What rank 0 kept of everybody before the launch ended.
struct LastWords {
  explicit LastWords(const std::string& run) {
    if (!run.empty()) words = read_last_words(run);
  }
  LastWord of(int rank) const {
    for (const LastWord& word : words) {
      if (word.rank == rank) return word;
    }
    LastWord none;
    none.rank = rank;
    return none;
  }
  // The step that the run is known to have reached.
  int64_t step() const {
    int64_t most = 0;
    for (const LastWord& word : words) most = std::max(most, word.step);
    return most;
  }
  std::vector<LastWord> words;
};

std::string hint_after(const RankLaunch& launch, const LastWords& words) {
  return how_it_goes_on(launch.run, launch.parallel, words.step(), launch.fresh);
}

// These come from what a program does, and Open MPI prints where.
bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL;
}

void print_dead(const DeadRank& dead, const MpirunOutput& output, const RankLaunch& launch) {
  const std::string by = dead.signal == 0
                             ? std::string("a signal")
                             : strprintf("signal %d (%s)", dead.signal, strsignal(dead.signal));
  const LastWords words(launch.run);
  LastWord word = words.of(dead.rank);
  if (word.me.empty()) {  // the ranks of --ranks are on this machine
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    word.me = dead.node.empty() ? host : dead.node;
    if (dead.pid > 0) word.me += ", pid " + std::to_string(dead.pid);
  }
  if (is_crash(dead.signal)) std::fputs(output.library_words().c_str(), stderr);
  std::string hint = hint_after(launch, words);
  if (dead.signal == SIGILL) {
    hint =
        "its CPU may not have all instructions that the program was compiled for: build it on "
        "the oldest machine, or for any x86-64 CPU (cmake --preset portable); if it has them, "
        "please report this with the command; " +
        hint;
  } else if (is_crash(dead.signal)) {
    hint = "this looks like a bug in assay: please report it with the command; " + hint;
  } else if (dead.signal == SIGKILL) {
    hint += "; `dmesg` says whether memory ran out";
  }
  print_error(rank_name(word) + " was ended by " + by + "; its last word: " + said(word), hint);
}

// Says why the ranks ended, unless one of them has, and returns the exit code of the launch.
int explain(const MpirunEnd& end, const RankLaunch& launch) {
  const MpirunOutput& output = end.output;
  const bool killed = output.dead() || end.signal != 0;
  constexpr int kOwn[] = {kExitDone, kExitStoppedByGuard, kExitInterrupted};
  const bool own = std::find(std::begin(kOwn), std::end(kOwn), end.code) != std::end(kOwn);
  if (output.said_error()) {
    if (killed || end.code == kExitRankLost) return kExitRankLost;
    return own ? end.code : kExitUserError;
  }
  if (!killed && own) return end.code;
  // Before they can stop in order, and at the second request, the signal itself ends the ranks.
  std::optional<DeadRank> dead = output.dead();
  if (dead && dead->signal == 0 && end.code > 128) dead->signal = end.code - 128;
  const int signal = dead ? dead->signal : end.signal;
  const bool as_asked = signal == SIGUSR1 || signal == SIGTERM;
  if (end.asked > 1 || (end.asked > 0 && as_asked)) return kExitInterrupted;
  if (dead) {
    print_dead(*dead, output, launch);
    return kExitRankLost;
  }
  if (end.signal != 0) {
    print_error(strprintf("mpirun, which started the ranks, was ended by signal %d (%s)",
                          end.signal, strsignal(end.signal)),
                hint_after(launch, LastWords(launch.run)));
    return kExitRankLost;
  }
  if (end.code == kExitRankLost) {
    print_error("a rank was lost, and the one that knows which could not say it",
                hint_after(launch, LastWords(launch.run)));
    return kExitRankLost;
  }
  std::fputs((output.library_words() + output.own_words()).c_str(), stderr);
  print_error(strprintf("mpirun ended with exit code %d", end.code),
              output.own_words().empty() ? "see the lines above" : "its own words are above");
  return kExitUserError;
}

// The step that the run would go on from; 0 unless --stop-after needs it, since all of a checkpoint
// is read for it.
int64_t valid_step(const RankLaunch& launch) {
  if (launch.stop_after == 0) return 0;
  return step_in(Checkpoints(launch.run, 1, {}).newest());
}

// For a run that has no configuration yet: fewer ranks would begin it with fewer parts.
void set_parts(std::vector<std::string>& command, int64_t parts) {
  const std::vector<std::string> words = {"--set", strprintf("parallel.parts=%ld", long(parts))};
  const size_t n = words.size();
  if (command.size() >= n && std::equal(words.begin(), words.end(), command.end() - n)) return;
  command.insert(command.end(), words.begin(), words.end());
}

void set_stop_after(std::vector<std::string>& command, int64_t steps) {
  const std::string name = "--stop-after";
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == name && i + 1 < command.size()) command[i + 1] = std::to_string(steps);
    if (command[i].rfind(name + "=", 0) == 0) command[i] = name + "=" + std::to_string(steps);
  }
}

// So that a restart goes on: a flag may have a value, as in --fresh=true.
void without_fresh(std::vector<std::string>& command) {
  std::erase_if(command, [](const std::string& word) {
    return word == "--fresh" || word.starts_with("--fresh=");
  });
}

// Ranks may be more than cores, for tests; a slip of the finger would hold the machine.
void require_startable(int64_t ranks) {
  constexpr int64_t kOfCore = 4, kAnywhere = 32;
  const int64_t cores = usable_cores(), most = std::max(kAnywhere, kOfCore * cores);
  if (ranks <= most) return;
  throw UserError(strprintf("--ranks %ld is more than the %ld processes that are started on %ld "
                            "core%s",
                            long(ranks), long(most), long(cores), cores == 1 ? "" : "s"),
                  strprintf("give --ranks %ld, one for each core, or fewer; on several machines "
                            "start them with mpirun or srun",
                            long(cores)));
}

}  // namespace

std::vector<std::string> without_rank_options(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string name = word.substr(0, word.find('='));
    if (name == "--ranks" || name == "--restarts" || name == "--min-ranks") {
      if (name == word) ++i;  // its value is the next word
      continue;
    }
    kept.push_back(word);
  }
  return kept;
}

int launch_ranks(const RankLaunch& launch) {
  require_startable(launch.ranks);
  if (const MpiLibrary library = find_mpi_library(); !library.found) {
    throw UserError("--ranks needs MPI, which this program cannot use here: " + library.problem,
                    library.hint);
  }
  if (!launch.run.empty()) require_unused(launch.run, "choose another --run");
  std::vector<std::string> command = launch.command;
  command.front() = program();
  bool fresh = launch.fresh;
  const SameRun old(launch.run);
  // A run that --fresh has yet to delete has no checkpoint of ours.
  const auto reached = [&] { return fresh ? 0 : newest_step(launch.run); };
  int64_t ranks = launch.ranks, used = 0;  // restarts since the newest checkpoint
  const int64_t began = fresh ? 0 : valid_step(launch);
  int64_t saved = reached();
  while (true) {
    std::error_code ignored;  // what was said in an earlier launch
    if (!launch.run.empty()) std::filesystem::remove(last_words_path(launch.run), ignored);
    const MpirunEnd end = run_mpirun(int(ranks), command);
    const int code = explain(end, launch);
    if (code != kExitRankLost || end.asked > 0) return code;
    if (fresh && !old.still()) {
      fresh = false;
      without_fresh(command);
    }
    const int64_t now = reached();
    // Less than before: what was the newest then was found damaged since.
    const bool progress = now > std::exchange(saved, now);
    if (progress) {
      used = 0;
    } else if (launch.min_ranks > 0) {
      const bool begins = fresh || !std::filesystem::exists(launch.run + "/config.yaml", ignored);
      ranks = fewer_ranks(
          launch, begins ? launch.parallel : parallel_of(launch.run, launch.parallel), ranks);
      if (begins && ranks < launch.ranks) set_parts(command, launch.parallel.parts);
    }
    const int64_t left = began + launch.stop_after - (fresh ? 0 : valid_step(launch));
    if (launch.stop_after > 0 && left <= 0) {
      std::fprintf(stderr, "the steps of --stop-after are done and saved\n");
      return kExitDone;
    }
    if (used == launch.restarts) return code;
    used += 1;
    if (launch.stop_after > 0) set_stop_after(command, left);
    std::fprintf(stderr, "restart %ld of %ld since the last checkpoint: %ld rank%s, from %s\n",
                 long(used), long(launch.restarts), long(ranks), ranks == 1 ? "" : "s",
                 now > 0 ? strprintf("step %ld", long(now)).c_str() : "the beginning");
  }
}

std::string how_it_goes_on(const std::string& run, const ParallelConfig& parallel, int64_t step,
                           bool fresh) {
  if (run.empty()) return "the same command begins again";
  const int64_t saved = newest_step(run);
  const std::string on = "on " + fitting_ranks(parallel_of(run, parallel));
  if (saved == 0) {
    return "there is no checkpoint yet; the same command begins again, " + on;
  }
  std::string text = strprintf("the last checkpoint is step %ld", long(saved));
  if (step > saved) {
    text += strprintf(", about %ld step%s repeated", long(step - saved),
                      step - saved == 1 ? " is" : "s are");
  }
  return text + "; the same command " + (fresh ? "without --fresh " : "") + "goes on, " + on;
}

}  // namespace assay
