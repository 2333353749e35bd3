// Whether all ranks were started with the same program, configuration and data.
#pragma once

#include "session/ranks.h"
#include "session/run_data.h"
#include "session/session.h"
#include "session/training_run.h"

namespace assay {

// Collective. Every rank compares all with the first one; a difference is the same UserError on
// all, which names the rank and both values. What changes no result may differ, as run.threads.
void require_same_run_on_all(Ranks& ranks, const Session& session, const RunData& data,
                             TrainingRunOptions::Start start);

}  // namespace assay
