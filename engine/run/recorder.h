// Writes a run's records: telemetry.db, the terminal line of each logged step, events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  double limit_flops_per_s = 0;           // mfu is a share of it; 0 = unknown, no mfu
  std::vector<std::string> sources = {};  // names of a mixture's sources
  std::vector<int64_t> moe_layers = {};
  int64_t experts = 0;
  std::vector<OperandSite> operands = {};
  int64_t print_every = 1;  // logged steps between those shown on stderr
};

// Seconds of one step, and of all steps of the run up to it, without evaluations and saves. NaN =
// unknown.
struct StepTimes {
  double step_s = 0;
  double train_s = 0;
};

class RunRecorder {
 public:
  RunRecorder(const RecorderConfig& config, Log& log);

  // Deletes rows after steps_done. Restores in `routers` the loads of the last `window` logged
  // steps and the guard's streaks.
  void resume(int64_t steps_done, int64_t window, RouterTelemetry& routers);

  // Call for every step, logged or not; the time left is estimated from it.
  void took(double seconds) { eta_.step_took(seconds); }
  void step(Exec on, const StepStats& stats, const StepTimes& times, Model& model,
            RouterTelemetry& routers);
  void evaluation(int64_t steps_done, const Evaluation& evaluation, double seconds);
  // Progress of a long evaluation: a bar on a terminal, else a line every ten seconds.
  void evaluating(int64_t steps_done, const std::string& what, double share, double seconds);
  // The evaluation failed.
  void no_evaluation(int64_t steps_done, const std::string& task, const std::string& why);
  // The evaluation was done, but some of its values are not finite.
  void not_finite_evaluation(int64_t steps_done, const std::string& task, const std::string& why);
  bool has_evaluation(int64_t steps_done, const std::string& task) const;
  // Of that step; nullopt if it was not validated.
  std::optional<double> validation_loss(int64_t steps_done) const;
  // A checkpoint that was due by time could not be written; training continues.
  void no_checkpoint(int64_t steps_done, const std::string& why);
  void checkpoint(int64_t steps_done, const std::string& folder, double seconds);
  void event(int64_t steps_done, const std::string& kind, const std::string& detail);
  Telemetry& telemetry() { return telemetry_; }

 private:
  const RecorderConfig config_;
  Log& log_;
  Telemetry telemetry_;
  Eta eta_;
  int64_t shown_ = 0;     // logged steps of this process
  double said_at_s_ = 0;  // seconds into the current evaluation at its last progress line
};

// Peak resident memory of this process, in bytes.
double peak_rss_bytes();

}  // namespace assay
