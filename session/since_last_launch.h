// What a launch changes of a run that goes on. A setting that --set gave to the launch before, and
// that this one does not give, is that of the file again: that may not have been meant.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/run/checkpoint.h"

namespace assay {

// "changed since the last launch: run.milestone_every: 500 -> 0; eval.every: 20 -> 50"; "" if
// nothing is.
std::string since_last_launch_text(const Config& last, const Config& now);

// Warnings where the change costs checkpoints: fewer are kept than the launch kept that saved the
// newest one, or the best one is no longer followed. steps_done: of that checkpoint.
std::vector<std::string> checkpoint_warnings(const Config& saved_with, const Config& now,
                                             const Checkpoints& checkpoints, int64_t steps_done);

}  // namespace assay
