// How evenly a run's routers spread their tokens, and the one judgement of it. `assay train`,
// `router`, `compare`, `matrix` and the report all take their word from judge_router().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/choice.h"
#include "lab/runs/step_loads.h"

namespace assay {

// From best to worst. recovered: healthy now, after a layer was saturated. too_early: fewer than W
// logged steps. restless: even over the window, uneven at its single steps, since the experts that
// take the tokens change. uneven: far from even, but not collapsed.
enum class RouterState { kHealthy, kRecovered, kTooEarly, kRestless, kUneven, kCollapsed };
template <>
struct Choice<RouterState> {
  static constexpr const char* kNames[] = {"healthy",  "recovered", "too_early",
                                           "restless", "uneven",    "collapsed"};
};
// As people read it: "too early".
std::string state_word(RouterState state);

// One MoE layer over the last W logged steps (telemetry.window).
struct LayerHealth {
  int64_t layer = 0;  // block index
  double max_load_norm = 0, active_norm = 1;
  std::optional<double> cv_norm = {}, entropy_norm = {};
  std::optional<int64_t> saturated_at = {};  // first such logged step of the whole run
  int64_t saturated_after = 0;               // the logged step before that; 0 if it was the first
  std::optional<StepLoads> steps = {};       // single steps; absent if they were not measured
  double assignments = 0;                    // 0 = unknown
};

// The layers together, over the last W logged steps.
struct RouterHealth {
  std::vector<LayerHealth> layers = {};  // by block index
  int64_t worst_layer = 0;               // block index; the layer with the largest max_load
  double worst_max_load_norm = 0;      // K max_load there: 1 = one expert is in every token's top-K
  double mean_cv_norm = 0;             // mean over layers of cv / ceiling
  double min_entropy_norm = 1;         // smallest over layers of entropy / ln E
  double dead_share = 0;               // experts without an assignment, share of all routed experts
  std::vector<int64_t> saturated;      // layers, by the rule of engine/telemetry/router_stats.h
  std::vector<int64_t> restless = {};  // layers, by is_restless()
  // Of the layer with the largest swing, a restless one if there is any; where no swing is above
  // what sampling gives, of the layer with the largest cv.
  std::optional<StepLoads> worst_steps = {};
  int64_t worst_steps_layer = 0;  // block index

  int64_t experts = 0, top_k = 0;  // E, K; 0 = unknown
  double assignments = 0;          // of a layer; 0 = unknown
  int64_t logged = 0, window = 0;  // logged steps of the run, and W
  bool stopped_by_guard = false;   // the run ended by telemetry.collapse_stop

  std::optional<int64_t> first_saturated() const;  // over layers
  // True if sampling alone leaves experts without an assignment, or lowers the entropy.
  bool few_assignments() const;
  // "K*max_load 0.79 (layer 1), 0.0% of the experts dead", what sampling alone gives if there are
  // few assignments, and steps_text() if they are restless.
  std::string text() const;
  // "at single steps K*max_load 0.07 and cv 139% of the mean load (layer 2); sampling alone gives a
  // cv of 35%, loads swing by 126%, 60% of the choices on fixed tokens stay from probe to probe";
  // "" if no single step was measured.
  std::string steps_text() const;
};

// experts, top_k: E and K, 0 if unknown.
RouterHealth health_of(std::span<const LayerHealth> layers, int64_t experts, int64_t top_k);

inline constexpr double kCollapsedDead = 0.5;  // share of all experts
inline constexpr double kUnevenExcess = 0.5;   // load_excess of the worst layer
inline constexpr double kUnevenEntropy = 0.9;  // smallest entropy / ln E
inline constexpr double kUnevenDead = 0.05;    // share of all experts
// Per expert, over the window. Uniform routing leaves 0.005% of the experts dead at this many, 5%
// at 3 and 55% at 0.6: below it the rules on dead experts and on the entropy count from what
// sampling alone gives.
inline constexpr double kFewAssignments = 10;

// Position of the largest load between even and its ceiling: 0 if all loads are equal, 1 if one
// expert is in every token's top-K. 0 if K = E.
double load_excess(double max_load_norm, int64_t experts, int64_t top_k);

struct RouterJudgement {
  RouterState state = RouterState::kHealthy;
  std::string rule;  // that decided, with its thresholds
};
RouterJudgement judge_router(const RouterHealth& health);
inline RouterState router_state(const RouterHealth& health) {
  return judge_router(health).state;
}

}  // namespace assay
