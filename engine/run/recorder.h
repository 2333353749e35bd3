// What a run writes down: telemetry.db, the terminal line of each logged step, events. The step
// itself only hands over numbers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/evaluator.h"
#include "engine/run/log.h"
#include "engine/run/progress.h"
#include "engine/telemetry/router_telemetry.h"
#include "engine/telemetry/telemetry.h"
#include "engine/trainer.h"

namespace assay {

struct RecorderConfig {
  std::string telemetry_path;
  int64_t steps = 0;
  int64_t batch_tokens = 0;
  double flops_per_token = 0;
  double limit_flops_per_s = 0;           // what mfu is a share of; 0 = not known, no mfu
  std::vector<std::string> sources = {};  // of a mixture, by name
  std::vector<int64_t> moe_layers = {};
  int64_t experts = 0;
  std::vector<OperandSite> operands = {};
};

// Seconds of one step, and of all steps of the run up to it: evaluations and saves left out. NaN =
// not known.
struct StepTimes {
  double step_s = 0;
  double train_s = 0;
};

class RunRecorder {
 public:
  RunRecorder(const RecorderConfig& config, Log& log);

  // Rows after steps_done are forgotten. `routers` gets back the loads of the last `window` logged
  // steps and what its guard asks of them.
  void resume(int64_t steps_done, int64_t window, RouterTelemetry& routers);

  // Of every step, logged or not: what the time left is estimated from.
  void took(double seconds) { eta_.step_took(seconds); }
  void step(Exec on, const StepStats& stats, const StepTimes& times, Model& model,
            RouterTelemetry& routers);
  void evaluation(int64_t steps_done, const Evaluation& evaluation, double seconds);
  // Where a long one is: a bar on a terminal, else a line now and then.
  void evaluating(int64_t steps_done, const std::string& what, double share, double seconds);
  void no_evaluation(int64_t steps_done, const std::string& task, const std::string& why);
  // Done, but not all of it is a number.
  void not_finite_evaluation(int64_t steps_done, const std::string& task, const std::string& why);
  bool has_evaluation(int64_t steps_done, const std::string& task) const;
  void checkpoint(int64_t steps_done, const std::string& folder, double seconds);
  void event(int64_t steps_done, const std::string& kind, const std::string& detail);
  Telemetry& telemetry() { return telemetry_; }

 private:
  const RecorderConfig config_;
  Log& log_;
  Telemetry telemetry_;
  Eta eta_;
  double said_at_s_ = 0;  // of the evaluation under way
};

// Resident memory of this process at its largest, in bytes.
double peak_rss_bytes();

}  // namespace assay
