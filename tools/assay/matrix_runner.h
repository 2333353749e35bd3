// Trains the cells of a matrix: starts `assay train` for each, several at once within a budget,
// shows where they are, and waits. What is done already is known before (lab/matrix/state.h).
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/budget.h"
#include "lab/matrix/state.h"

namespace assay {

struct PlannedRun {
  const Cell* cell = nullptr;
  CellStatus status;
  bool fresh = false;  // its run is that of another configuration: start over
};

struct FailedRun {
  std::string cell;
  int code = 0;  // of `assay train`; 128 + signal
  std::string error;
};

struct RunnerOptions {
  std::string program;  // as the user called this one: what the runs note as their command
  MatrixBudget budget;
  enum class OnFailure { kGoOn, kStop } on_failure = OnFailure::kGoOn;
};

struct RunnerResult {
  std::vector<FailedRun> failed;
  bool interrupted = false;
};

// Ctrl-C and SIGTERM are passed on to the runs, which write their checkpoints and end.
RunnerResult train_cells(const MatrixFolder& folder, std::vector<PlannedRun> planned,
                         const RunnerOptions& options);

}  // namespace assay
