// telemetry.collapse_stop: stops a run whose routers have collapsed, by a rule of the user's
// choice. A normalised measure (docs/numerics.md) lies at or beyond a bound for so many logged
// steps in a row: in one layer, in every layer, or in the mean over the layers. Off unless the
// configuration has the section; nothing in a dense model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/schema.h"

namespace assay {

class CollapseGuard {
 public:
  // layers: block indices of the MoE layers.
  CollapseGuard(const std::optional<CollapseStopConfig>& rule, std::vector<int64_t> layers);

  // A logged step, one row a layer. Allocates nothing.
  void observe(std::span<const RouterRow> rows);
  // The last logged steps of a run that resumes, by the rule of now.
  void replay(const TelemetryReader& telemetry);

  bool holds() const;
  // The rule and the numbers of the last logged step: "max_load_norm of layer 2 is 0.953, at least
  // 0.9 for 10 logged steps".
  std::string because() const;

 private:
  bool beyond(double value) const;
  void add();  // values_, where NaN is absent and beyond no bound
  // The layer that has been beyond the bound for longest (any) or shortest (all).
  size_t deciding_layer() const;

  std::optional<CollapseStopConfig> rule_;
  std::vector<int64_t> layers_;
  RouterColumn column_ = {};
  std::vector<double> values_;   // (layers)
  std::vector<int64_t> streak_;  // (layers) logged steps in a row up to the last one
  double mean_ = 0;
  int64_t mean_streak_ = 0;
};

}  // namespace assay
