// `assay train --ranks N`: starts this program N times on this machine, by way of mpirun, and
// starts it again after a rank was lost if it was asked to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct RankLaunch {
  int64_t ranks = 1;
  int64_t restarts = 0;   // at most so many without a new checkpoint in between
  int64_t min_ranks = 0;  // such a restart may take fewer ranks, at least so many; 0: as many
  std::vector<std::string> command;  // of one rank: the whole command line without these options
  std::string run;                   // the run directory
  int64_t parts = 0;                 // parallel.parts; 0: one for each rank of the first launch
};

// Returns the exit code of the run, kExitRankLost if a rank was lost and no restart is left. Output
// of the ranks is passed on as it comes; what mpirun itself says is shown only where nothing else
// explains the end. Ctrl-C, SIGTERM and SIGHUP stop the run with a checkpoint, as on one rank.
// UserError: no MPI, no mpirun.
int launch_ranks(const RankLaunch& launch);

// The command line of one rank.
std::vector<std::string> without_rank_options(const std::vector<std::string>& arguments);

}  // namespace assay
