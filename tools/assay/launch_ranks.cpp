#include "tools/assay/launch_ranks.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>

#include "base/check.h"
#include "comm/launch.h"
#include "comm/layout.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "tools/assay/commands.h"
#include "tools/assay/mpirun.h"

namespace assay {

namespace {

// The step of the newest checkpoint; 0 if there is none.
int64_t newest_step(const std::string& run) {
  const std::optional<std::string> newest = Checkpoints(run, 1, {}).newest();
  return newest ? load_state(*newest).step : 0;
}

void print_lost(const DeadRank& dead, int64_t step) {
  std::fprintf(stderr, "error: rank %d (%s, pid %d) was ended by signal %d (%s)\n", dead.rank,
               dead.node.c_str(), dead.pid, dead.signal, strsignal(dead.signal));
  const std::string from = step > 0 ? strprintf("the last checkpoint is step %ld", long(step))
                                    : std::string("there is no checkpoint yet");
  std::fprintf(stderr,
               "hint: %s; the same command goes on, on any number of ranks that divides the "
               "batch's parts\n",
               from.c_str());
}

// The largest number of ranks below `ranks` that can share the run's parts.
int64_t fewer_ranks(const RankLaunch& launch, int64_t ranks) {
  const std::string file = launch.run + "/config.yaml";
  const int64_t parts =
      std::filesystem::exists(file) ? load_config(file).parallel.batch_parts() : launch.parts;
  for (int64_t n = ranks - 1; n >= std::max<int64_t>(1, launch.min_ranks); --n) {
    if (Layout::fits(std::max<int64_t>(parts, 1), n)) return n;
  }
  return ranks;
}

std::string program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? std::string(path, size_t(length)) : "assay";
}

int exit_code(const MpirunEnd& end) {
  if (end.dead) return kExitRankLost;
  // mpirun reports every code but 0; of a stop with a checkpoint the ranks themselves have told.
  if (end.code != 0 && end.code != kExitInterrupted && !end.said_error && !end.own_words.empty()) {
    std::fprintf(stderr, "%s", end.own_words.c_str());
    std::fprintf(stderr, "error: mpirun ended with exit code %d\nhint: its own words are above\n",
                 end.code);
  }
  return end.code;
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
  if (const MpiLibrary library = find_mpi_library(); !library.found) {
    throw UserError("--ranks needs MPI, which this program cannot use here: " + library.problem,
                    "install an MPI (Debian: apt-get install libopenmpi-dev openmpi-bin) and build "
                    "Assay again");
  }
  std::vector<std::string> command = launch.command;
  command.front() = program();
  int64_t ranks = launch.ranks, left = launch.restarts;
  int64_t saved = newest_step(launch.run);
  while (true) {
    const MpirunEnd end = run_mpirun(int(ranks), command);
    const int code = exit_code(end);
    if (code != kExitRankLost) return code;
    const int64_t now = newest_step(launch.run);
    if (end.dead) print_lost(*end.dead, now);
    if (now > saved) {
      left = launch.restarts;
      saved = now;
    } else if (launch.min_ranks > 0) {
      ranks = fewer_ranks(launch, ranks);
    }
    if (left == 0) return code;
    left -= 1;
    std::erase(command, "--fresh");
    std::fprintf(stderr, "restart with %ld ranks from %s, %ld more without a new checkpoint\n",
                 long(ranks), now > 0 ? strprintf("step %ld", long(now)).c_str() : "the beginning",
                 long(left));
  }
}

}  // namespace assay
