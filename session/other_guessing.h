// Whether a run that goes on scores CORE against other accuracies of guessing than before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/core_bundle.h"

namespace assay {

// What to warn of before the run goes on with these tasks; "" if its last recorded CORE, of a step
// up to this one, had the same accuracies of guessing, or it has none.
std::string other_guessing_before(const std::string& run, const std::vector<CoreTask>& tasks,
                                  int64_t steps_done);

}  // namespace assay
