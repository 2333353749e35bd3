// A run read back from its directory: configuration, audit, curves, end and router health. Tables,
// comparisons and receipts use only this, nothing that only the training process knew. Runs that
// are still training can be read too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "models/audit/audit.h"

namespace assay {

// One MoE layer over the last W logged steps (telemetry.window).
struct LayerHealth {
  int64_t layer = 0;  // block index
  double max_load_norm = 0, active_norm = 1;
  std::optional<double> cv_norm = {}, entropy_norm = {};
  std::optional<int64_t> saturated_at = {};  // first such logged step of the whole run
};

// How evenly the routers spread their tokens over the last W logged steps.
struct RouterHealth {
  std::vector<LayerHealth> layers = {};  // by block index
  int64_t worst_layer = 0;               // block index; the layer with the largest max_load
  double worst_max_load_norm = 0;  // K max_load there: 1 = one expert is in every token's top-K
  double mean_cv_norm = 0;         // mean over layers of cv / ceiling
  double min_entropy_norm = 1;     // smallest over layers of entropy / ln E
  double dead_share = 0;           // experts without an assignment, share of all routed experts
  std::vector<int64_t> saturated;  // layers, by the rule of engine/telemetry/router_stats.h
  bool collapsed() const { return !saturated.empty() || dead_share > kDeadShare; }
  static constexpr double kDeadShare = 0.5;
};

RouterHealth health_of(std::span<const LayerHealth> layers);

struct RunRecord {
  std::string path;  // the directory
  std::string name;  // its last part
  Config config;     // resolved
  Audit audit;

  // From meta.json; "" where absent.
  std::string commit, program_sha256, host, device, cpu, started, recipe;
  bool dirty = false;
  std::map<std::string, std::string> data_sha256;  // by file
  std::string reused_from;  // from reused.json: the run that this is a copy of; "" if not a copy

  int64_t steps_done = 0;  // logged
  int64_t tokens = 0;
  std::string end;  // run_end_name() of the last launch; "" if none has ended
  std::vector<EvalValue> val_loss_nats, val_bits_per_byte;
  std::vector<StepValue> train_s;  // training seconds up to a step, without evaluations and saves
  std::optional<RouterHealth> health;  // for MoE runs with a logged step

  bool finished() const { return end == "steps" || end == "target_loss"; }
  std::optional<EvalValue> last_val() const;
  std::optional<EvalValue> best_val() const;
  std::optional<EvalValue> val_at(int64_t step) const;
  // First evaluation at or below the loss.
  std::optional<EvalValue> first_val_at_or_below(double loss_nats) const;
  // Seconds of training up to a step; nullopt if no step at or before it has a logged time.
  std::optional<double> seconds_at(int64_t step) const;
  double flops_at(int64_t step) const;  // training FLOPs of all tokens up to the step
};

// UserError if there is no run or it logged nothing.
RunRecord read_run(const std::string& run);

}  // namespace assay
