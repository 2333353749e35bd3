// Trains the first steps of a run again from its sealed configuration, with `assay train` in a
// separate process and folder, and compares bit for bit: the step's hash (loss, gradient norm,
// parameters), losses, gradient norms and evaluations in both telemetries. This shows what claims
// cannot: that the configuration and the data lead to these losses.
//
// It trains on one rank, on the kind of device that made these steps (meta.json). Where this
// machine has none, its CPU computes with other instructions, or one rank has other bits than the
// ranks that made them, the answer is "not available".
#pragma once

#include <string>
#include <vector>

#include "lab/receipt/verify.h"

namespace assay {

struct RerunOptions {
  int64_t steps = 0;
  std::string program;            // path of assay
  std::vector<std::string> data;  // folders searched for shards before their recorded places
  std::string gpu;                // name of the GPU that can be used here; "": none
  std::string gpu_problem = {};   // why none can be
  int guard_exit = 0;             // status of `assay train` whose run a guard stopped
};

// One check per run; for a matrix one for each of its runs. UserError: more steps than the run has,
// none of them logged, or the training failed.
std::vector<Check> rerun_receipt(const std::string& file_or_folder, const RerunOptions& options);

}  // namespace assay
