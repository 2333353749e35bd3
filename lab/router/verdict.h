// What a router analysis comes to in words: one of a few states, each by a rule that is printed
// with it, and advice, each with the numbers it rests on.
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
  // too_early: not W logged steps yet. collapsed: a layer is saturated or over half of the experts
  // are dead. uneven: loads are far from even, short of that. recovered: healthy, after a layer had
  // saturated. healthy.
  std::string state;
  std::string rule;     // the one that decided, with its thresholds
  std::string because;  // the numbers
  std::vector<RouterAdvice> advice;
};

// How far the worst load is from even towards its ceiling: 0 where all loads are equal, 1 where one
// expert is in every token's top-K. 0 where K = E.
double load_excess(double max_load_norm, int64_t experts, int64_t top_k);

inline constexpr double kUnevenExcess = 0.5;   // load_excess of the worst layer
inline constexpr double kUnevenEntropy = 0.9;  // smallest entropy / ln E
inline constexpr double kUnevenDead = 0.05;    // share of all experts

RouterVerdict router_verdict(const RouterAnalysis& analysis, const Config& config);

}  // namespace assay
