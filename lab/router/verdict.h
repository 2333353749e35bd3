// The verdict of a router analysis: a state with the rule that decided it, and advice with the
// numbers that support it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

struct RouterLayer;
struct RouterAnalysis;

struct RouterAdvice {
  std::string rule;     // a short name, for scripts
  std::string because;  // the evidence
  std::string advice;
};

struct RouterVerdict {
  // too_early: fewer than W logged steps. collapsed: a layer is saturated or over half of the
  // experts are dead. uneven: loads are far from even, but not collapsed. recovered: healthy now,
  // after a layer was saturated. healthy.
  std::string state;
  std::string rule;     // the rule that decided, with its thresholds
  std::string because;  // the numbers
  std::vector<RouterAdvice> advice;
};

// Position of the largest load between even and its ceiling: 0 if all loads are equal, 1 if one
// expert is in every token's top-K. 0 if K = E.
double load_excess(double max_load_norm, int64_t experts, int64_t top_k);

inline constexpr double kUnevenExcess = 0.5;   // load_excess of the worst layer
inline constexpr double kUnevenEntropy = 0.9;  // smallest entropy / ln E
inline constexpr double kUnevenDead = 0.05;    // share of all experts

RouterVerdict router_verdict(const RouterAnalysis& analysis, const Config& config);

}  // namespace assay
