// A run read back from its directory: configuration, audit, curves, end, router health and CORE.
// Tables, comparisons and receipts use only this, nothing that only the training process knew. Runs
// that are still training can be read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "lab/runs/recorded_core.h"
#include "lab/runs/recorded_data.h"
#include "lab/runs/router_state.h"
#include "models/audit/audit.h"

namespace assay {

struct RunRecord {
  std::string path;  // the directory
  std::string name;  // its last part; read_runs() adds folders where it takes them to differ
  Config config;     // resolved
  Audit audit;

  // From meta.json; "" where absent. device, cpu: of all launches that made steps of it, "cpu, then
  // cuda: NVIDIA H200".
  std::string commit, program_sha256, host, device, cpu, started, recipe;
  std::string instructions;  // instructions_over_launches() of the same launches
  // Of the same launches, "1, then 2"; threads are those of each rank, nodes the machines of the
  // ranks. "" where not known.
  std::string ranks, threads, nodes;
  bool dirty = false;
  FileHashes data_sha256;
  std::string tokenizer_sha256;  // recorded_tokenizer()
  // Of a pass over the training data, as the last launch found it; nullopt if that is not recorded
  // (older versions) and of a mixture.
  std::optional<int64_t> epoch_tokens = {};
  // SHA-256 of imported.json (engine/run/run_dir.h): the source of the weights that the run, or the
  // trunk that it is a branch of, began from. "" if it began from its seed.
  std::string imported_sha256;
  std::string reused_from;  // from reused.json: the run that this is a copy of; "" if not a copy

  int64_t steps_done = 0;   // with any row: logged, validated or saved
  int64_t last_logged = 0;  // the last step with router measures; before steps_done at times
  int64_t tokens = 0;
  std::string end;  // run_end_name() of the last launch; "" if that has not ended
  std::vector<EvalValue> val_loss_nats, val_bits_per_byte;
  std::vector<StepValue> train_s;  // training seconds up to a step, without evaluations and saves
  std::optional<RouterHealth> health;  // for MoE runs with a logged step
  std::optional<RecordedCore> core;    // the last score of eval.core

  bool finished() const { return end == "steps" || end == "target_loss"; }
  std::optional<EvalValue> last_val() const;
  std::optional<EvalValue> best_val() const;
  std::optional<EvalValue> val_at(int64_t step) const;
  // The last logged time at or before a step; nullopt if there is none.
  std::optional<StepValue> time_at(int64_t step) const;
  // Its seconds of training.
  std::optional<double> seconds_at(int64_t step) const;
  std::optional<double> seconds_per_step() const;  // up to the last step whose time is known
  double flops_at(int64_t step) const;             // training FLOPs of all tokens up to the step
};

// Of an evaluation inside a run; nullopt without one, and where the loss was NaN or infinite, which
// only at the last step ends a run.
std::optional<double> finite_value(const std::optional<EvalValue>& eval);

// The largest step of the run's telemetry. UserError if it is later than run.steps: no run makes
// such a step, so another program wrote it.
int64_t recorded_steps(const TelemetryReader& telemetry, int64_t run_steps, const std::string& run);

// UserError if there is no run, it logged nothing, or its telemetry has a step after run.steps.
RunRecord read_run(const std::string& run);
// The same, with the telemetry of the run, which is open.
RunRecord read_run(const std::string& run, const TelemetryReader& telemetry);

}  // namespace assay
