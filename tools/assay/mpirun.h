// mpirun as a child process: its environment, its output, its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/assay/mpirun_output.h"

namespace assay {

struct MpirunEnd {
  int code = 0;    // mpirun's exit code
  int signal = 0;  // that ended mpirun itself
  int asked = 0;   // times that this process was asked to stop, and asked the ranks
  MpirunOutput output;
};

// Runs `mpirun -n RANKS COMMAND...` and waits for it. stdout is inherited; of stderr the ranks'
// lines are passed on (mpirun_output.h). Signals that ask this process to stop are passed on as
// SIGUSR1, which mpirun gives to the ranks; a second one ends mpirun. UserError if there is no
// mpirun.
MpirunEnd run_mpirun(int ranks, const std::vector<std::string>& command);

}  // namespace assay
