// Measures the seconds of one optimizer step on this machine, for contracts in seconds. These are
// turned into steps before the run begins, so that its schedule depends only on the step.
#pragma once

#include "engine/config/config.h"
#include "models/decoder/decoder.h"
#include "tools/assay/run_data.h"

namespace assay {

// The median of 9 steps after 3 warm-up steps of a temporary model. Allocates what a run of the
// configuration allocates, and frees it. gpu: null = on the CPU.
double measured_step_seconds(const Config& config, Recipe recipe, const RunData& data,
                             gpu::Context* gpu);

}  // namespace assay
