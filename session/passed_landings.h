// Landings that a run had passed when they were asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/run/landing.h"

namespace assay {

// A warning that names those up to steps_done which the run in the folder has not made: it has
// neither the event of one nor a checkpoint that is kept. "" if there is none.
std::string passed_landings_text(const std::string& run, const std::vector<Landing>& landings,
                                 int64_t steps_done);

}  // namespace assay
