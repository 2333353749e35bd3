// What a configuration says that its author may not have meant.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// One line each, for the log before step 1: a router without balancing, no block with experts, a
// setting that nothing uses, a stop rule that cannot hold, more threads than cores.
std::vector<std::string> training_warnings(const Config& config);

}  // namespace assay
