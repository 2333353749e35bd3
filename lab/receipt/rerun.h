// The first steps of a run trained again from its sealed configuration, by `assay train` in a
// process and a folder of its own, and compared bit for bit: the step's hash (loss, gradient norm,
// parameters), losses, gradient norms and evaluations in both telemetries. What a claim cannot
// show, that the configuration and the data make these losses.
#pragma once

#include <string>
#include <vector>

#include "lab/receipt/verify.h"

namespace assay {

struct RerunOptions {
  int64_t steps = 0;
  std::string program;  // assay
  std::vector<std::string>
      data;  // folders to look for shards in, before the places the run had them
};

// One check a run; of a matrix, of each of its runs. UserError: more steps than the run has, none
// of them logged, or the training did not start.
std::vector<Check> rerun_receipt(const std::string& file_or_folder, const RerunOptions& options);

}  // namespace assay
