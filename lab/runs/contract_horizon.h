// The length of the contract that a run is under.
#pragma once

#include <cstdint>
#include <string>

#include "lab/runs/run_record.h"

namespace assay {

// Steps of the whole contract; run.steps may be a fraction of them.
int64_t contract_horizon(const RunRecord& run);

// Of a run under a contract in seconds whose steps took more than a fifth longer or shorter than
// those that its number of steps was derived from: "the training took 1.44 s, not the 3 s ...".
// "" of any other.
std::string missed_seconds_text(const RunRecord& run);

}  // namespace assay
