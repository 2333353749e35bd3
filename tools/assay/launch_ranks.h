// `assay train --ranks N`: starts this program N times on this machine, by way of mpirun, and
// starts it again after a rank was lost if it was asked to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

struct RankLaunch {
  int64_t ranks = 1;
  int64_t restarts = 0;   // at most so many without a new checkpoint in between
  int64_t min_ranks = 0;  // such a restart may take fewer ranks, at least so many; 0: as many
  std::vector<std::string> command;  // of one rank: the whole command line without these options
  std::string run;                   // the run directory
  ParallelConfig parallel = {};      // of a run that has no configuration yet
  int64_t stop_after = 0;            // steps of all launches together; 0: to the run's end
  bool fresh = false;                // the command deletes the run first, in its first launch
};

// Returns the exit code of the run, kExitRankLost if a rank was lost and no restart is left. Output
// of the ranks is passed on as it comes; what mpirun itself says is shown only where nothing else
// explains the end. Ctrl-C, SIGTERM and SIGHUP stop the run with a checkpoint, as on one rank.
// UserError: no MPI, no mpirun, a run that is in use, more ranks than this machine can hold.
int launch_ranks(const RankLaunch& launch);

// For the hint after a loss: "the last checkpoint is step 400, about 12 steps are repeated; the
// same command goes on, on 1, 2 or 4 ranks". step: how far the run is known to have come; parallel:
// of a run that has no configuration yet; fresh: the command has --fresh, which deletes the run.
std::string how_it_goes_on(const std::string& run, const ParallelConfig& parallel, int64_t step,
                           bool fresh);

// The command line of one rank.
std::vector<std::string> without_rank_options(const std::vector<std::string>& arguments);

}  // namespace assay
