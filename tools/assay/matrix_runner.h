// Trains the cells of a matrix: starts `assay train` for each, several at once within a budget,
// shows their progress, and waits. lab/matrix/state.h finds out beforehand which cells are done.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/budget.h"
#include "lab/matrix/state.h"

namespace assay {

struct PlannedRun {
  const Cell* cell = nullptr;
  CellStatus status;
  bool fresh = false;  // start over: the existing run has another configuration
};

struct FailedRun {
  std::string cell;
  int code = 0;  // exit code of `assay train`, or 128 + signal
  std::string error;
};

struct RunnerOptions {
  std::string program;          // argv[0] of the runs, recorded as their command
  std::string device = "auto";  // --device of the runs
  MatrixBudget budget;
  enum class OnFailure { kGoOn, kStop } on_failure = OnFailure::kGoOn;
};

// A line "warning: ..." of the runs' logs.
struct RunWarning {
  std::string text;  // without "warning: "
  size_t runs = 0;   // that said so
  std::string log;   // of the first of them
};

struct RunnerResult {
  std::vector<FailedRun> failed;
  std::vector<RunWarning> warnings;  // in the order in which they were first said
  bool interrupted = false;
};

// Returns when all runs have ended. Ctrl-C and SIGTERM are passed on to the runs, which write their
// checkpoints and end; no further run is started then.
RunnerResult train_cells(const MatrixFolder& folder, std::vector<PlannedRun> planned,
                         const RunnerOptions& options);

}  // namespace assay
