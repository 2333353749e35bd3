// A training run as one object: data, memory, model, optimizer, loader, evaluators and the folder,
// put together from a session in the order in which they need each other.
//
//   TrainingRun run(Session(load_config("moe.yaml"), {.device = "auto"}), {.folder = "runs/moe"});
//   run.open();    // allocates; resumes what the folder holds, or initialises the model
//   const RunResult result = run.train({.on_step = [](const StepStats& s) { ... }});
//
// The folder ends up as `assay train` leaves it: config.yaml, meta.json, log.txt, telemetry.db,
// checkpoints/, receipt.json; on a GPU also products.json, and tune.json if there was one. The same
// program again resumes the run.
//
// With ranks (SessionOptions::ranks) each has such an object and makes the same calls. The first
// one writes the folder; the others write their part of a checkpoint, and ranks/rank-00003.log.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "models/audit/audit.h"
#include "session/data_evidence.h"
#include "session/energy_counters.h"
#include "session/resolve_run.h"
#include "session/run_data.h"
#include "session/run_evaluators.h"
#include "session/run_products.h"
#include "session/run_so_far.h"
#include "session/session.h"

namespace assay {

struct TrainingHooks {
  std::function<void(const StepStats&)> on_step = {};  // after each step
  std::function<bool()> stop_requested = {};           // asked at any time; true: save and stop
  std::optional<int64_t> stop_after = {};              // steps of this call
};

class TrainingRun {
 public:
  // Resolves the contract to steps, reads the data, plans the memory. Nothing is allocated and no
  // file is written, except that a contract in seconds trains a few steps to measure them and the
  // embedded corpus is made if it is not cached. UserError as load_config, resolve_data and
  // read_core_bundle.
  TrainingRun(Session session, TrainingRunOptions options);
  ~TrainingRun();

  // Opens the folder, allocates, and resumes from the newest checkpoint or initialises the model
  // from run.seed. UserError: not enough memory, another run's folder, changed data, another
  // precision after the last step.
  void open();
  // Trains until the run ends or is stopped, then writes the receipt. Once, after open(): another
  // TrainingRun of the same folder continues.
  RunResult train(const TrainingHooks& hooks = {});

  // Known after the constructor.
  // run.steps is resolved, except of a contract in seconds with SessionOptions::Use::kPlan.
  const Config& config() const { return session_.config; }
  const Session& session() const { return session_; }
  const Audit& audit() const { return audit_; }
  // At most about eval.tokens: the data may have fewer.
  int64_t validation_tokens() const { return evaluators_.validation.tokens(); }
  const MemoryPlan& plan() const { return memory_.plan; }
  // The memory of another rank of the same launch, planned and never allocated; with
  // SessionOptions::Use::kPlan only.
  std::unique_ptr<TrainingMemory> planned_memory(int rank);
  // What the sources of a mixture come to in run.steps steps, as a table; "" without a mixture.
  std::string mixture_table() { return assay::mixture_table(loader_, config()); }
  // How often run.steps steps see the data of one source, and a warning if that is often; "" else.
  std::string passes_text() const { return assay::passes_text(loader_, config()); }
  std::string many_passes_text() const { return assay::many_passes_text(loader_, config()); }
  // How much of the validation data the losses are of; "" if it is all.
  std::string validation_text() const { return assay::validation_text(config(), data_); }

  // Known after open().
  const RunDir& dir() const { return *dir_; }
  Log& log() { return *log_; }
  Model& model() { return *memory_.model; }
  const RunStart& start() const { return start_; }
  // Resumed from it; nullopt where the model was initialised.
  const std::optional<std::string>& checkpoint() const { return so_far_.checkpoint(); }
  // That the run had begun and has nothing to go on from; "" otherwise. On the first rank.
  const std::string& begins_again() const { return begins_again_; }
  // A run.target_loss that was given after the last step, and so did not stop the run.
  std::optional<double> late_target() const { return late_target_; }
  // The precision in which it was trained, if this launch has another one.
  std::optional<PrecisionConfig> other_precision_before() const {
    return so_far_.other_precision(session_);
  }

 private:
  bool first() const { return session_.ranks == nullptr || session_.ranks->first(); }
  void require_unused_folder();
  Config open_folder();
  Config configuration_to_write();
  std::optional<int64_t> tokens_of_pass() const;
  RunMeta meta(const Config& written) const;
  void announce_launch(const std::string& other_instructions);
  void announce_changes();
  void open_records(double peak_flop_per_s);
  void give_up_later_measurements();
  LoaderConfig announcing_loader();
  void plan_others(TrainingMemory& memory);
  RecorderConfig recorder_config(double peak_flop_per_s) const;
  RunParts parts();
  void seal();

  Session session_;
  const TrainingRunOptions options_;
  const Audit audit_;
  RunData data_;
  TrainingMemory memory_;
  std::unique_ptr<Log> log_;  // before the loader, which announces epochs
  Loader loader_;
  RunEvaluators evaluators_;

  std::optional<RunDir> dir_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<RunProducts> products_;  // of the first rank
  RunSoFar so_far_;
  std::optional<double> late_target_;
  std::string begins_again_;
  Exec on_;
  std::optional<TrainingRanks> ranks_;
  std::optional<EnergyCounters> energy_;  // not with ranks: none could count the others' GPUs
  std::optional<RunRecorder> recorder_;   // of the first rank
  SilentRecorder silent_;                 // of the others
  RunStart start_;
  bool trained_ = false;
};

}  // namespace assay
