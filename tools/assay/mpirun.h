// mpirun as a child process: its environment, its output, and what it says of ranks that died.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace assay {

// A rank that a signal ended, by mpirun's message.
struct DeadRank {
  int rank = 0;
  int pid = 0;  // 0: not said
  std::string node;
  int signal = 0;
};

struct MpirunEnd {
  int code = 0;  // mpirun's, 128 + signal if a signal ended mpirun
  std::optional<DeadRank> dead;
  bool said_error = false;  // a rank printed a line `error: ...`
  std::string own_words;    // what mpirun itself printed
};

// Takes mpirun's messages out of the lines of its standard error. They stand between lines of
// dashes (Open MPI).
class MpirunOutput {
 public:
  // What of `line` (without its end) is a rank's: true, print it.
  bool is_of_rank(const std::string& line);
  MpirunEnd end() const { return end_; }

 private:
  bool inside_ = false;
  MpirunEnd end_;
};

// Runs `mpirun -n RANKS COMMAND...` and waits for it. stdout is inherited; of stderr the ranks'
// lines are passed on. Signals that ask this process to stop are passed on as SIGUSR1, which mpirun
// gives to the ranks; a second one ends mpirun. UserError if there is no mpirun.
MpirunEnd run_mpirun(int ranks, const std::vector<std::string>& command);

}  // namespace assay
