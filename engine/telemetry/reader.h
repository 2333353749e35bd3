// Reading telemetry.db, also while the run goes on: what `assay router`, `report`, `compare` and
// the demo's table ask.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/telemetry/schema.h"
#include "engine/telemetry/sqlite.h"

namespace assay {

struct StepValue {
  int64_t step = 0;
  double value = 0;
};
struct LayerValue {
  int64_t layer = 0;
  double value = 0;
};
struct EvalValue {
  int64_t step = 0;
  double value = 0;
  int64_t n = 0;
};

struct OperandValue {
  OperandSite site;
  OperandLoss loss;
};

class TelemetryReader {
 public:
  // UserError when there is no such file, it is not a telemetry database, or that of a later
  // version.
  explicit TelemetryReader(const std::string& path);

  std::optional<int64_t> last_step() const;  // logged
  // The largest step, at most `up_to`, of anything written down: a run that ends between two logged
  // steps left an evaluation or an event. 0 when there is nothing.
  int64_t steps_done(int64_t up_to) const;
  int64_t events(const std::string& kind) const;
  std::optional<std::string> last_event(const std::string& kind) const;  // its detail
  std::vector<StepValue> scalar(const std::string& name) const;
  std::optional<StepValue> last_scalar(const std::string& name) const;
  std::vector<std::string> scalar_names() const;

  // By step; NaN where the evaluation gave no number.
  std::vector<EvalValue> eval(const std::string& task, const std::string& metric) const;
  std::optional<EvalValue> last_eval(const std::string& task, const std::string& metric) const;
  std::vector<std::pair<std::string, std::string>> eval_names() const;  // task, metric
  bool has_eval(int64_t step, const std::string& task) const;

  // column: a name of router_columns(). Layers where it is absent are left out; all of them where
  // an earlier version did not measure it.
  std::vector<LayerValue> router(const std::string& column, int64_t step) const;
  std::vector<StepValue> router_over_time(const std::string& column, int64_t layer) const;
  // The layer with the largest K * max_load at the last logged step; nothing for a dense run.
  std::optional<LayerValue> worst_max_load_norm() const;

  // Steps with rows of the table precision; nothing where no product is quantised, or an earlier
  // version wrote the run.
  std::vector<int64_t> precision_steps() const;
  std::vector<OperandValue> precision(int64_t step) const;  // by layer

  std::vector<uint32_t> expert_load(int64_t step, int64_t layer) const;  // empty when not logged
  std::optional<std::string> meta(const std::string& key) const;

 private:
  Database database_;
  std::set<std::string> columns_;  // of router_layer: an earlier version had fewer
};

}  // namespace assay
