// Writes a run's records: telemetry.db, the terminal line of each logged step, events.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/evaluator.h"
#include "engine/run/log.h"
#include "engine/run/progress.h"
#include "engine/run/training_energy.h"
#include "engine/telemetry/reader.h"
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
  bool ranks = false;       // several share the batch: what this one sends is recorded
  int64_t print_every = 1;  // logged steps between those shown on stderr
};

// Seconds of one step, and seconds and energy of all steps of the run up to it, without hashes of
// the parameters, evaluations and saves. NaN = unknown.
struct StepTimes {
  double step_s = 0;
  double train_s = 0;
  double hash_s = std::numeric_limits<double>::quiet_NaN();  // of the parameters, after the step
  double other_left_s = 0;  // of the evaluations and saves that are left, as measured so far
  Energy energy = {};
  std::vector<RankStep> ranks = {};  // what each rank did in the step; empty: there is one
};

// What a run tells about itself while it goes on.
class Recorder {
 public:
  virtual ~Recorder() = default;

  // Deletes rows after steps_done. Restores in `routers` the loads of the last `window` logged
  // steps and the guard's streaks.
  virtual void resume(int64_t steps_done, int64_t window, RouterTelemetry& routers) = 0;

  // Call for every step, logged or not; the time left is estimated from it.
  virtual void took(double seconds) = 0;
  virtual void step(Exec on, const StepStats& stats, const StepTimes& times, Model& model,
                    RouterTelemetry& routers) = 0;
  // Of all steps up to one that was not logged and is validated after all.
  virtual void times(int64_t steps_done, double train_s, const Energy& energy) = 0;
  virtual void evaluation(int64_t steps_done, const Evaluation& evaluation, double seconds) = 0;
  // Progress of a long evaluation: a bar on a terminal, else a line every ten seconds.
  virtual void evaluating(int64_t steps_done, const std::string& what, double share,
                          double seconds) = 0;
  // The evaluation failed.
  virtual void no_evaluation(int64_t steps_done, const std::string& task,
                             const std::string& why) = 0;
  // The evaluation was done, but some of its values are not finite.
  virtual void not_finite_evaluation(int64_t steps_done, const std::string& task,
                                     const std::string& why) = 0;
  virtual bool has_evaluation(int64_t steps_done, const std::string& task) const = 0;
  // Of that step; nullopt if it was not validated.
  virtual std::optional<double> validation_loss(int64_t steps_done) const = 0;
  // The smallest one that is recorded, without that of the initial weights; nullopt without one.
  virtual std::optional<StepValue> lowest_validation_loss() const = 0;
  // A checkpoint that was due by time could not be written; training continues.
  virtual void no_checkpoint(int64_t steps_done, const std::string& why) = 0;
  virtual void checkpoint(int64_t steps_done, const std::string& folder, double seconds) = 0;
  virtual void event(int64_t steps_done, const std::string& kind, const std::string& detail) = 0;
  // Unless one of this kind and detail is recorded.
  virtual void event_once(int64_t steps_done, const std::string& kind,
                          const std::string& detail) = 0;
  // Everything recorded so far is in the file.
  virtual void flush() = 0;
};

class RunRecorder final : public Recorder {
 public:
  RunRecorder(const RecorderConfig& config, Log& log);

  void resume(int64_t steps_done, int64_t window, RouterTelemetry& routers) override;
  void took(double seconds) override { eta_.step_took(seconds); }
  void step(Exec on, const StepStats& stats, const StepTimes& times, Model& model,
            RouterTelemetry& routers) override;
  void times(int64_t steps_done, double train_s, const Energy& energy) override;
  void evaluation(int64_t steps_done, const Evaluation& evaluation, double seconds) override;
  void evaluating(int64_t steps_done, const std::string& what, double share,
                  double seconds) override;
  void no_evaluation(int64_t steps_done, const std::string& task, const std::string& why) override;
  void not_finite_evaluation(int64_t steps_done, const std::string& task,
                             const std::string& why) override;
  bool has_evaluation(int64_t steps_done, const std::string& task) const override;
  std::optional<double> validation_loss(int64_t steps_done) const override;
  std::optional<StepValue> lowest_validation_loss() const override;
  void no_checkpoint(int64_t steps_done, const std::string& why) override;
  void checkpoint(int64_t steps_done, const std::string& folder, double seconds) override;
  void event(int64_t steps_done, const std::string& kind, const std::string& detail) override;
  void event_once(int64_t steps_done, const std::string& kind, const std::string& detail) override;
  void flush() override { telemetry_.flush(); }
  Telemetry& telemetry() { return telemetry_; }

 private:
  const RecorderConfig config_;
  Log& log_;
  Telemetry telemetry_;
  Eta eta_;
  int64_t shown_ = 0;     // logged steps of this process
  double said_at_s_ = 0;  // seconds into the current evaluation at its last progress line
};

// Of a rank that is not the first one: the first one records for all.
class SilentRecorder : public Recorder {
 public:
  void resume(int64_t, int64_t, RouterTelemetry&) override {}
  void took(double) override {}
  void step(Exec, const StepStats&, const StepTimes&, Model&, RouterTelemetry&) override {}
  void times(int64_t, double, const Energy&) override {}
  void evaluation(int64_t, const Evaluation&, double) override {}
  void evaluating(int64_t, const std::string&, double, double) override {}
  void no_evaluation(int64_t, const std::string&, const std::string&) override {}
  void not_finite_evaluation(int64_t, const std::string&, const std::string&) override {}
  bool has_evaluation(int64_t, const std::string&) const override { return false; }
  std::optional<double> validation_loss(int64_t) const override { return std::nullopt; }
  std::optional<StepValue> lowest_validation_loss() const override { return std::nullopt; }
  void no_checkpoint(int64_t, const std::string&) override {}
  void checkpoint(int64_t, const std::string&, double) override {}
  void event(int64_t, const std::string&, const std::string&) override {}
  void event_once(int64_t, const std::string&, const std::string&) override {}
  void flush() override {}
};

// Peak resident memory of this process, in bytes.
double peak_rss_bytes();

}  // namespace assay
