// telemetry.collapse_stop: auto. The rule and what it rests on: its bound is the one that separates
// the collapsed runs of five recorded studies from the others best, as `assay early-warning --rule
// auto` chooses it (docs/early-warning.md has its output and its limits). Measure, layers, `for`
// and `from` were fixed before. A configuration that is read has the rule itself in place of the
// word. tests/run/test_early_warning.py compares the evidence with the recorded runs.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace assay {

inline CollapseStopConfig collapse_auto() {
  return {.measure = "entropy_norm",
          .at_most = 0.848,
          .layers = CollapseLayers::kMean,
          .logged_steps = 10,
          .from = 0.1};
}

// Counts of runs: hits are collapsed runs that a rule stops, alarms others that it stops.
struct CollapseEvidence {
  int64_t hits = 0, collapsed = 0, alarms = 0, others = 0;
};
// Each run judged by a bound that the runs of its configuration had no part in.
inline constexpr CollapseEvidence kCollapseAutoEvidence = {
    .hits = 55, .collapsed = 58, .alarms = 2, .others = 25};

// "entropy_norm <= 0.848 in the mean over the layers for 10 logged steps from 10% of the steps on".
std::string collapse_rule_text(const CollapseStopConfig& rule);

// "collapse_stop: auto is ..., which on 83 recorded runs had ..."; "" unless the configuration has
// experts and this rule, be it by name or in its own words.
std::string collapse_auto_text(const Config& config);

}  // namespace assay
