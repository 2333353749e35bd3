// What `assay train` says before and after training: on the terminal, in the run's log, as JSON.
#pragma once

#include "session/training_run.h"
#include "session/training_warnings.h"

namespace assay {

// After TrainingRun::open(): device, parameters, memory, contract, formats, the sources of a
// mixture, and warnings about the checkpoint that the run resumes from. is_given: as
// training_warnings() takes it.
void announce_run(TrainingRun& run, const IsGiven& is_given);

// How the run ended, its summary, and what helps where a guard stopped it. json: also one JSON
// object on stdout.
void report_run(TrainingRun& run, RunResult result, TrainingRunOptions::Start start, bool json);

}  // namespace assay
