// What a configuration says that its author may not have meant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cores.h"
#include "engine/config/config.h"

namespace assay {

struct ProcessCores {
  int64_t cores = usable_cores();  // for this process
  int64_t processes = 1;           // of the run
};

// One line each, for the log before step 1: a router without balancing (with Muon also what that
// does to idle experts), no block with experts, a setting that nothing uses, a stop rule that
// cannot hold, more threads than cores. Files that configurations include hold some fields for only
// one or the other of them, as the rate at the end of a cosine: these are named if `is_given` says
// that the command or its own file gives them.
using IsGiven = std::function<bool(const std::string& field)>;
std::vector<std::string> training_warnings(const Config& config, const IsGiven& is_given = {},
                                           const ProcessCores& on = {});

// That the run will log too few steps for a judgement of its routers (lab/runs/router_state.h), and
// what to set; "" if it logs enough or has no routers. No warning: many short runs need none.
std::string too_few_for_a_verdict(const Config& config);

}  // namespace assay
