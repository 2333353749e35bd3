// Measures the seconds of one optimizer step on this machine, for contracts in seconds. These are
// turned into steps before the run begins, so that its schedule depends only on the step.
#pragma once

#include "session/run_data.h"
#include "session/session.h"

namespace assay {

// The median of 9 steps after 3 warm-up steps of a temporary model. Allocates what a run of the
// configuration allocates, and frees it. Collective with ranks; each has its own time.
double measured_step_seconds(const Session& session, const RunData& data);

}  // namespace assay
