// The collapse analysis of `assay router`: the routers of a run at chosen steps, layer by layer
// over the last W logged steps, and a verdict. Formulas and names: docs/numerics.md (router
// telemetry). A normalised measure, a share of its ceiling, compares layers and steps at one E and
// K; of them only e_eff_norm compares numbers of experts (docs/router.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/router/history.h"
#include "lab/router/verdict.h"
#include "lab/runs/run_record.h"
#include "lab/runs/step_loads.h"

namespace assay {

// Over the layers of one logged step.
struct RouterAtStep {
  int64_t step = 0;
  std::optional<double> loss_nats = {};  // of the training batch
  double cv_mean = 0, cv_floor = 0;
  std::optional<double> cv_norm_mean = {};
  double max_load_mean = 0, max_load_norm_mean = 0, max_load_norm_worst = 0;
  int64_t worst_layer = 0;  // block index, by max_load_norm
  double entropy_min = 0;
  std::optional<double> entropy_norm_min = {}, e_eff_norm_min = {};
  int64_t active_min = 0;            // experts
  std::optional<int64_t> dead = {};  // experts, sum over layers; absent before W logged steps
  int64_t saturated = 0;             // layers
};

struct RouterLayer {
  int64_t layer = 0;                         // block index
  std::optional<int64_t> saturated_at = {};  // first logged step with max_load >= 0.9 / K
  // Over the last W logged steps together. assignments: 0 = unknown.
  double assignments = 0;
  double cv = 0, cv_floor = 0, max_load = 0, max_load_norm = 0, gini = 0, active_norm = 0;
  std::optional<double> cv_norm, entropy_norm, e_eff_norm;
  // Per load of RouterAnalysis::ccdf_loads: share of the experts with at least that load.
  std::vector<double> ccdf;
  // Experts without an assignment in all of the last W logged steps, absent before W are logged,
  // and steps since their last one; experts without one at any logged step.
  std::optional<int64_t> dead = {};
  int64_t dead_longest = 0, dead_median = 0, never_used = 0;
  // Mean over the last W logged steps; absent if one is logged, which none is before.
  std::optional<double> turnover = {};
  std::optional<StepLoads> steps = {};  // at single ones of the last W logged steps
  // At the last logged step that has it.
  std::optional<double> bias_range, margin, lead, gate_entropy_norm, overlap;
};

struct RouterAnalysis {
  std::string run, end;  // end: "" if the run is training or was killed
  int64_t experts = 0, top_k = 0, window = 0;
  int64_t logged = 0, last_step = 0, planned_steps = 0;
  int64_t step_gap = 1;  // usual steps from one logged step to the next, where turnover is measured
  double cv_ceiling = 0, max_load_ceiling = 0, entropy_ceiling = 0, turnover_floor = 0;
  std::vector<double> ccdf_loads = {};   // multiples of the mean load
  std::vector<RouterAtStep> steps = {};  // the chosen ones
  std::vector<RouterLayer> layers = {};
  RouterVerdict verdict = {};
};

// steps: those to tabulate, each replaced by the nearest logged one; empty: the first, the last,
// and some between on a logarithmic scale. UserError for a run without experts, without a logged
// step, or for steps outside of the logged range.
RouterAnalysis analyse_router(const RunRecord& run, const TelemetryReader& telemetry,
                              const std::vector<int64_t>& steps);
// The same from a history and the training losses, without reading files.
RouterAnalysis analyse_router(const RunRecord& run, const RouterHistory& history,
                              const std::vector<StepValue>& loss,
                              const std::vector<int64_t>& steps);

}  // namespace assay
