// What `assay train` says before and after training: on the terminal, in the run's log, as JSON.
#pragma once

#include <string>
#include <vector>

#include "session/training_run.h"

namespace assay {

// After TrainingRun::open(): device, parameters, memory, contract, formats, the sources of a
// mixture, and warnings about the checkpoint that the run resumes from. sets: the command's --set.
void announce_run(TrainingRun& run, const std::vector<std::string>& sets);

// How the run ended, its summary, and what helps where a guard stopped it. json: also one JSON
// object on stdout.
void report_run(TrainingRun& run, RunResult result, TrainingRunOptions::Start start, bool json);

}  // namespace assay
