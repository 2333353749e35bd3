// The length of the contract that a run is under.
#pragma once

#include <cstdint>

#include "lab/runs/run_record.h"

namespace assay {

// Steps of the whole contract; run.steps may be a fraction of them.
int64_t contract_horizon(const RunRecord& run);

}  // namespace assay
