// The checkpoint that `assay eval` measures, with its configuration as --set changes it.
#pragma once

#include <string>
#include <vector>

#include "session/loaded_model.h"
#include "session/ranks.h"

namespace assay {

// open_checkpoint() with `sets` applied, and a precision.recipe of `auto` resolved for the backend.
// A set that names formats is measured in them: if the step is in the bf16 of precision.bf16_tail,
// that becomes 0, which a note on stderr says, unless precision.bf16_tail is set too. ranks: null,
// or those of which the first one writes notes. UserError for a set that changes the model.
CheckpointSource open_with_sets(const std::string& run_or_checkpoint,
                                const std::vector<std::string>& sets, Backend backend,
                                const Ranks* ranks = nullptr);

}  // namespace assay
