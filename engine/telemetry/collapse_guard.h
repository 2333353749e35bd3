// telemetry.collapse_stop: detects collapsed routers by a configured rule. The rule holds if a
// normalised measure (docs/numerics.md) is at or beyond a bound for n consecutive logged steps: in
// one layer, in every layer, or in the mean over the layers. With `from`, logged steps before that
// share of run.steps do not count. Off unless the configuration has the section; without effect in
// a dense model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/schema.h"

namespace assay {

// The first logged step that the rule counts: `from` of the steps, rounded up; 0.07 of 100 is 7,
// not 7.000000000000001. 0 without `from`.
int64_t first_counted_step(const CollapseStopConfig& rule, int64_t steps);

class CollapseGuard {
 public:
  // layers: block indices of the MoE layers. steps: run.steps.
  CollapseGuard(const std::optional<CollapseStopConfig>& rule, std::vector<int64_t> layers,
                int64_t steps);

  // Adds a logged step, one row per MoE layer. Allocates nothing.
  void observe(int64_t step, std::span<const RouterRow> rows);
  // The same from the rule's measure by layer; layers without a value are beyond no bound.
  void observe(int64_t step, std::span<const LayerValue> values);
  // Replays the last logged steps of a resumed run under the current rule.
  void replay(const TelemetryReader& telemetry);

  bool holds() const;
  // The rule with the values of the last logged step: "max_load_norm of layer 2 is 0.953, at least
  // 0.9 for 10 logged steps"; with `from` also "counted from step 24 on".
  std::string because() const;

 private:
  bool beyond(double value) const;
  void add();  // updates the streaks from values_; NaN (absent) is beyond no bound
  // The layer that has been beyond the bound for longest (any) or shortest (all).
  size_t deciding_layer() const;

  std::optional<CollapseStopConfig> rule_;
  std::vector<int64_t> layers_;
  int64_t first_ = 0;  // the first step that counts
  RouterColumn column_ = {};
  std::vector<double> values_;   // (layers)
  std::vector<int64_t> streak_;  // (layers) consecutive logged steps beyond the bound, up to now
  double mean_ = 0;
  int64_t mean_streak_ = 0;
};

}  // namespace assay
