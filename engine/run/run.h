// A training run around Trainer::step: resume, loop { step, log, evaluate, save }, finish. Training
// ends when the steps are done, an evaluation reaches run.target_loss, the loss, a gradient or a
// quantised operand is not finite, the validation loss after the last step is not, the routers
// collapse by the rule of telemetry.collapse_stop, or the user interrupts, or stop_after steps are
// done.
//
// A landing of the contract is evaluated regardless of eval.every, and its checkpoint is kept; the
// event "landing" has its fraction. Every step with a validation loss is logged, so that its time
// is known. Training seconds (scalar train_s) are measured by a steady clock, training
// energy (cpu_joules, gpu_joules) by counters of the hardware; both are of the steps alone, without
// the hash of a logged one, and are kept in the checkpoints.
//
// The first evaluator gives the validation loss. The other evaluators are read-only; they do not
// change the run's bits. They may take long, so they run after a due checkpoint is saved; if one is
// interrupted, the resumed run repeats all of it.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "comm/control.h"
#include "engine/evaluator.h"
#include "engine/run/checkpoint.h"
#include "engine/run/landing.h"
#include "engine/run/read_file.h"
#include "engine/run/recorder.h"
#include "engine/run/training_energy.h"
#include "engine/telemetry/router_telemetry.h"
#include "engine/trainer.h"

namespace assay {

enum class RunEnd { kSteps, kTargetLoss, kNonFinite, kCollapseStop, kInterrupted, kStopAfter };
// The detail of the event "end": "steps", "target_loss", "non_finite", "collapse_stop",
// "interrupted", "stop_after".
const char* run_end_name(RunEnd end);
// True if a guard ended the run; restarting would hit it again.
bool stopped_by_guard(const std::string& end_name);

// The parts of a run. Everything is planned, allocated and bound.
struct RunParts {
  const Config& config;  // resolved, run.steps from the contract
  Exec on;
  Model& model;
  const PartSums& sums;
  Optimizer& optimizer;
  Loader& loader;
  std::vector<Evaluator*> evaluators;  // the first one's first result is the validation loss
  Checkpoints& checkpoints;
  Recorder& recorder;
  RouterProbe probe;
  int32_t mask_id;                  // targets equal to it are not counted; -1: none
  std::vector<ReadFile> data = {};  // in the order in which they are read
  std::vector<Landing> landings = {};
  // The ranks that share the batch, this one among them; null: there is one. All make the same
  // calls and come to the same decisions; the first one records.
  const TrainingRanks* ranks = nullptr;
  // With ranks: told what this one does next, for messages about a rank that is lost. what: a
  // literal.
  std::function<void(const char* what, int64_t step, Control::Pace pace)> doing = {};
  // After each step, before the evaluations and the checkpoint that are due.
  std::function<void(const StepStats&)> on_step = {};
  std::function<Energy()> energy = {};     // see TrainingEnergy; empty: not counted
  std::optional<int64_t> stop_after = {};  // stop after so many steps of this process
  std::function<bool()> stop_requested;    // called after each step and during evaluations
};

struct RunResult {
  RunEnd end = RunEnd::kSteps;
  // kCollapseStop: the rule and its numbers; kNonFinite: the quantised operand, if there is one, or
  // that the validation loss after the last step is not finite.
  std::string why = "";
  int64_t steps_done = 0;
  int64_t tokens = 0;
  double val_loss_nats = 0;      // of the last evaluation; 0 before the first
  double val_bits_per_byte = 0;  // 0 without a tokenizer
  double tokens_per_s = 0;       // of this process, without evaluation and saving
};

// The step with the lowest validation loss so far; -1 before the first.
struct BestLoss {
  int64_t step = -1;
  double loss_nats = std::numeric_limits<double>::infinity();
};

// The state in which a run begins: new, or from a checkpoint.
struct RunStart {
  int64_t steps_done = 0;
  std::vector<int32_t> last_probe = {};                // RouterTelemetry::last_probe()
  double train_s = 0;                                  // NaN if the checkpoint does not have it
  Energy energy = {.cpu_joules = 0, .gpu_joules = 0};  // the same
  BestLoss best = {};                                  // with run.keep_best
  std::string not_finite = {};                         // first_not_finite() of the loaded tensors
};

RunResult run(RunParts& parts, const RunStart& start);

}  // namespace assay
