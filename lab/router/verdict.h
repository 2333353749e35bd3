// The verdict of a router analysis: a state with the rule that decided it, and advice with the
// numbers that support it.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "lab/runs/router_state.h"

namespace assay {

struct RouterLayer;
struct RouterAnalysis;

struct RouterAdvice {
  std::string rule;     // a short name, for scripts
  std::string because;  // the evidence
  std::string advice;
};

struct RouterVerdict {
  RouterState state = RouterState::kHealthy;
  std::string rule;     // the rule that decided, with its thresholds
  std::string because;  // the numbers
  std::vector<RouterAdvice> advice;
};

RouterVerdict router_verdict(const RouterAnalysis& analysis, const Config& config);

}  // namespace assay
