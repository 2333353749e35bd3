// How long one optimizer step of a configuration takes here: for contracts in seconds, which are
// turned into steps before the run begins, so that its schedule is a function of the step and
// nothing else.
#pragma once

#include "session/run_data.h"
#include "session/session.h"

namespace assay {

// The median of a few steps after a few others, in a model of its own that is thrown away.
// Allocates what a run of the configuration allocates, and frees it.
double measured_step_seconds(const Session& session, const RunData& data);

}  // namespace assay
