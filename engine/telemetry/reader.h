// Reads telemetry.db, also during the run, for the laboratory and the commands that read a run.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
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

// Of one layer: values over time by column.
using RouterCurves = std::map<std::string, std::vector<StepValue>>;

struct OperandValue {
  OperandSite site;
  OperandLoss loss;
};

// One row of the table rank_step.
struct RankStepRow {
  int64_t step = 0;
  int64_t rank = 0;
  RankStep of;
};

// A database without the tables of telemetry: not a run's, or killed while it was made.
class NotTelemetry : public UserError {
 public:
  using UserError::UserError;
};

std::string telemetry_file(const std::string& run);  // RUN/telemetry.db

class TelemetryReader {
 public:
  // Throws UserError if the file does not exist, is not a telemetry database, or is of a later
  // version.
  explicit TelemetryReader(const std::string& path, Wait wait = Wait::kLong);

  std::optional<int64_t> last_step() const;  // the last logged step
  // The largest step, at most `up_to`, with any row: a run that ends between two logged steps has
  // an evaluation or an event there. 0 if there is none.
  int64_t steps_done(int64_t up_to = std::numeric_limits<int64_t>::max()) const;
  int64_t events(const std::string& kind) const;  // their number
  // How the run ended, the detail of the event "end"; "" if it did not, or was resumed after it.
  // "non_finite" also of a run whose steps are done and whose last validation loss is NaN or
  // infinite: earlier versions recorded "steps".
  std::string end() const;
  std::vector<StepValue> scalar(const std::string& name) const;
  std::optional<StepValue> last_scalar(const std::string& name) const;
  std::vector<std::string> scalar_names() const;

  // By step; a value may be NaN.
  std::vector<EvalValue> eval(const std::string& task, const std::string& metric) const;
  std::optional<EvalValue> last_eval(const std::string& task, const std::string& metric) const;
  std::vector<std::pair<std::string, std::string>> eval_names() const;  // task, metric
  bool has_eval(int64_t step, const std::string& task) const;

  // column: a name of router_columns(). Layers (steps) without a value are left out; the result is
  // empty if an earlier version wrote the run and did not measure it.
  std::vector<LayerValue> router(const std::string& column, int64_t step) const;
  std::vector<StepValue> router_over_time(const std::string& column, int64_t layer) const;
  // The same for several columns and all layers, up to a step, in one pass over the table;
  // columns without a value are empty.
  std::map<int64_t, RouterCurves> router_curves(std::span<const char* const> columns,
                                                int64_t up_to) const;
  // The layer with the largest K * max_load at the last logged step; nullopt for a dense run.
  std::optional<LayerValue> worst_max_load_norm() const;

  // Steps with rows in the table precision; none if no product is quantised or an earlier version
  // wrote the run.
  std::vector<int64_t> precision_steps() const;
  std::vector<OperandValue> precision(int64_t step) const;  // by layer

  // Of the logged steps after a step, by step and rank; none if the run had one rank there or an
  // earlier version wrote it. last: only so many steps at the end.
  std::vector<RankStepRow> rank_steps(int64_t after = 0, std::optional<int64_t> last = {}) const;

  std::vector<uint32_t> expert_load(int64_t step, int64_t layer) const;  // empty when not logged
  // The counts of such a row, of which `packed` is what the database holds. UserError if it is no
  // load vector.
  std::vector<uint32_t> unpacked_load(std::string_view packed, int64_t step, int64_t layer) const;
  std::optional<std::string> meta(const std::string& key) const;

  const Database& database() const { return database_; }  // for other questions

 private:
  Database database_;
  std::set<std::string> columns_;  // of router_layer; earlier versions had fewer
};

}  // namespace assay
