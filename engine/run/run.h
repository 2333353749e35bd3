// A training run around Trainer::step: resume, loop { step, log, evaluate, save }, finish. Training
// is over when the steps are done, when an evaluation reaches run.target_loss, when the loss stops
// being a number, when the routers collapse by the rule of telemetry.collapse_stop, or when the
// user interrupts.
//
// A landing of the contract is evaluated whatever eval.every says, and its checkpoint stays; the
// event "landing" has its fraction. A step with a validation loss is logged, so that the time at
// every one is known. Training seconds (scalar train_s) are those of a steady clock, kept in the
// checkpoints.
//
// The first evaluator gives the validation loss. The others only look: with or without them a run
// has the same bits. They may take long, so they come when what there is to save is saved; one that
// an interruption cut off is done again, whole, when the run goes on.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/evaluator.h"
#include "engine/run/checkpoint.h"
#include "engine/run/landing.h"
#include "engine/run/recorder.h"
#include "engine/telemetry/router_telemetry.h"
#include "engine/trainer.h"

namespace assay {

enum class RunEnd { kSteps, kTargetLoss, kNonFinite, kCollapseStop, kInterrupted };
// "steps", "target_loss", "non_finite", "collapse_stop", "interrupted": the detail of the event
// "end".
const char* run_end_name(RunEnd end);
// Whether a run ended so by a guard of its own: the same would come again.
bool stopped_by_guard(const std::string& end_name);

// What a run is made of. Everything is planned, allocated and bound.
struct RunParts {
  const Config& config;  // resolved, run.steps from the contract
  Exec on;
  Model& model;
  Optimizer& optimizer;
  Loader& loader;
  std::vector<Evaluator*> evaluators;  // the first one's first result is the validation loss
  Checkpoints& checkpoints;
  RunRecorder& recorder;
  RouterProbe probe;
  int32_t mask_id;  // targets equal to it are not counted; -1: none
  std::map<std::string, std::string> data_sha256 = {};  // by file
  std::vector<Landing> landings = {};
  // After each step, before the evaluations and the checkpoint that are due.
  std::function<void(const StepStats&)> on_step = {};
  std::function<bool()> interrupted;     // asked once after each step
  std::function<bool()> stop_requested;  // asked at any time
};

struct RunResult {
  RunEnd end = RunEnd::kSteps;
  std::string why =
      "";  // of kCollapseStop: the rule and its numbers; of kNonFinite: the operand, where it is a quantised one
  int64_t steps_done = 0;
  int64_t tokens = 0;
  double val_loss_nats = 0;      // of the last evaluation; 0 before the first
  double val_bits_per_byte = 0;  // 0 when there is no tokenizer
  double tokens_per_s = 0;       // of this process, evaluation and saving left out
};

// Where a run begins: at the beginning, or as a checkpoint left it.
struct RunStart {
  int64_t steps_done = 0;
  std::vector<int32_t> last_probe = {};  // RouterTelemetry::last_probe()
  double train_s = 0;                    // NaN when the checkpoint does not say
  std::string not_finite = {};           // first_not_finite() of what was loaded
};

// UserError naming the first file whose content is not what the run has read so far. Files are told
// by their names without folders, so that data may move.
void require_same_data(const TrainingState& state, const std::map<std::string, std::string>& now);

// Loads the checkpoint into model and optimizer and seeks the loader; without one the model is
// initialised from run.seed.
RunStart resume_or_initialise(RunParts& parts, const std::optional<std::string>& checkpoint);

RunResult run(RunParts& parts, const RunStart& start);

}  // namespace assay
