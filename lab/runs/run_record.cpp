#include "lab/runs/run_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/json_text.h"
#include "engine/config/yaml.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/router_stats.h"
#include "lab/runs/first_weights.h"
#include "lab/runs/launches.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

using nlohmann::ordered_json;

void read_meta(const fs::path& folder, RunRecord& run) {
  const auto meta = json_in_file<ordered_json>(folder / "meta.json");
  if (!meta.is_object()) return;
  run.commit = text_or_empty(meta, "commit");
  run.program_sha256 = text_or_empty(meta, "program_sha256");
  run.host = text_or_empty(meta, "host");
  run.device = text_or_empty(meta, "device");
  run.cpu = text_or_empty(meta, "cpu");
  run.started = text_or_empty(meta, "started");
  run.recipe = text_or_empty(meta, "recipe");
  run.dirty = meta.contains("dirty") && meta["dirty"] == true;
  run.data_sha256 = recorded_data(meta);
  run.tokenizer_sha256 = recorded_tokenizer(meta);
  if (meta.contains("epoch_tokens") && meta["epoch_tokens"].is_number_integer())
    run.epoch_tokens = meta["epoch_tokens"].get<int64_t>();
}

// The run that this one is a copy of; "" if it is not a copy.
std::string read_origin(const fs::path& folder) {
  const auto origin = json_in_file<ordered_json>(folder / kReusedFile);
  return text_or_empty(origin, "from");
}

// Where every launch of several ranks has recorded their machines.
bool knows_nodes(const std::vector<ordered_json>& launches) {
  return std::all_of(launches.begin(), launches.end(), [](const ordered_json& launch) {
    return !launch.contains("ranks") || launch.contains("nodes");
  });
}

// A launch of one rank does not record that; one of an old version records no threads, and no
// machines of several ranks.
void read_parallel(const std::vector<ordered_json>& launches, RunRecord& run) {
  const int64_t threads = run.config.run.threads;  // 0: all cores, which old runs do not tell
  run.ranks = over_launches(launches, "ranks", "1");
  run.nodes = knows_nodes(launches) ? over_launches(launches, "nodes", "1") : "";
  run.threads = over_launches(launches, "threads", threads > 0 ? std::to_string(threads) : "");
}

std::optional<RouterHealth> read_health(const TelemetryReader& telemetry, const RunRecord& run) {
  if (!run.config.model.moe || run.last_logged == 0) return std::nullopt;
  const std::vector<LayerValue> load = telemetry.router("window_max_load_norm", run.last_logged);
  if (load.empty()) return std::nullopt;
  std::vector<LayerHealth> layers;
  for (const LayerValue& l : load) layers.push_back({.layer = l.layer, .max_load_norm = l.value});
  const auto fill = [&](const char* column, auto set) {
    for (const LayerValue& l : telemetry.router(column, run.last_logged)) {
      for (LayerHealth& layer : layers) {
        if (layer.layer == l.layer) set(layer, l.value);
      }
    }
  };
  fill("window_cv_norm", [](LayerHealth& l, double value) { l.cv_norm = value; });
  fill("window_entropy_norm", [](LayerHealth& l, double value) { l.entropy_norm = value; });
  fill("window_active_norm", [](LayerHealth& l, double value) { l.active_norm = value; });
  fill("window_assignments", [](LayerHealth& l, double value) { l.assignments = value; });
  const MoeConfig& moe = *run.config.model.moe;
  const double limit = saturation_limit(moe.experts, moe.top_k);
  auto curves = telemetry.router_curves(kStepLoadColumns, run.last_logged);
  for (LayerHealth& layer : layers) {
    const std::vector<StepValue>& loads = curves[layer.layer]["max_load_norm"];
    const auto first = std::find_if(loads.begin(), loads.end(),
                                    [&](const StepValue& v) { return v.value >= limit; });
    if (first == loads.end()) continue;
    layer.saturated_at = first->step;
    if (first != loads.begin()) layer.saturated_after = std::prev(first)->step;
  }
  for (const LayerValue& l : telemetry.router("window_cv", run.last_logged)) {
    for (LayerHealth& layer : layers) {
      if (layer.layer != l.layer) continue;
      layer.steps = step_loads(curves[l.layer], run.config.telemetry.window, l.value);
    }
  }
  RouterHealth health = health_of(layers, moe.experts, moe.top_k);
  health.logged = int64_t(telemetry.scalar("train_loss_nats").size());
  health.window = run.config.telemetry.window;
  health.stopped_by_guard = run.end == run_end_name(RunEnd::kCollapseStop);
  return health;
}

}  // namespace

std::optional<EvalValue> RunRecord::last_val() const {
  if (val_loss_nats.empty()) return std::nullopt;
  return val_loss_nats.back();
}

std::optional<EvalValue> RunRecord::best_val() const {
  const auto best = std::min_element(
      val_loss_nats.begin(), val_loss_nats.end(), [](const EvalValue& a, const EvalValue& b) {
        return std::isfinite(a.value) && !(b.value <= a.value);  // NaN and inf come last
      });
  if (best == val_loss_nats.end()) return std::nullopt;
  return *best;
}

std::optional<EvalValue> RunRecord::val_at(int64_t step) const {
  for (const EvalValue& v : val_loss_nats) {
    if (v.step == step) return v;
  }
  return std::nullopt;
}

std::optional<StepValue> RunRecord::time_at(int64_t step) const {
  std::optional<StepValue> time;
  for (const StepValue& v : train_s) {
    if (v.step <= step) time = v;
  }
  return time;
}

std::optional<double> RunRecord::seconds_at(int64_t step) const {
  const std::optional<StepValue> time = time_at(step);
  return time ? std::optional(time->value) : std::nullopt;
}

std::optional<double> RunRecord::seconds_per_step() const {
  if (train_s.empty() || train_s.back().step == 0) return std::nullopt;
  return train_s.back().value / double(train_s.back().step);
}

double RunRecord::flops_at(int64_t step) const {
  return double(audit.flops_per_token) * double(config.run.batch_tokens) * double(step);
}

std::optional<double> finite_value(const std::optional<EvalValue>& eval) {
  return eval && std::isfinite(eval->value) ? std::optional(eval->value) : std::nullopt;
}

namespace {

// What is known of a run before it logs.
RunRecord begun_record(const std::string& path) {
  const fs::path folder = require_run(path);
  RunRecord run;
  run.path = path;
  const fs::path whole = fs::absolute(folder).lexically_normal();
  run.name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  run.config = load_config((folder / "config.yaml").string(), {});
  run.audit = audit(run.config);
  read_meta(folder, run);
  run.reused_from = read_origin(folder);
  run.imported_sha256 = imported_weights(folder);
  return run;
}

void read_telemetry(const TelemetryReader& telemetry, RunRecord& run) {
  run.steps_done = recorded_steps(telemetry, run.config.run.steps, run.path);
  run.last_logged = telemetry.last_step().value_or(0);
  run.tokens = run.steps_done * run.config.run.batch_tokens;
  run.val_loss_nats = telemetry.eval("val", "loss_nats");
  run.val_bits_per_byte = telemetry.eval("val", "bits_per_byte");
  run.train_s = telemetry.scalar("train_s");
  const auto launches = contributing_launches(run.path, run.steps_done);
  for (const auto& [text, key] : {std::pair(&run.device, "device"), std::pair(&run.cpu, "cpu")}) {
    const std::string all = over_launches(launches, key);
    if (!all.empty()) *text = all;
  }
  run.instructions = instructions_over_launches(launches);
  read_parallel(launches, run);
  run.end = telemetry.end();
  run.health = read_health(telemetry, run);
  run.core = read_recorded_core(run.path, telemetry);
  if (run.steps_done == 0 && (run.val_loss_nats.empty() || run.val_loss_nats.back().step == 0)) {
    throw UserError(run.path + ": the run has no logged step yet", "train it first");
  }
}

}  // namespace

int64_t recorded_steps(const TelemetryReader& telemetry, int64_t run_steps,
                       const std::string& run) {
  const int64_t steps = telemetry.steps_done();
  if (steps <= run_steps) return steps;
  throw UserError(strprintf("%s: its telemetry has a value of step %ld, but run.steps is %ld",
                            run.c_str(), long(steps), long(run_steps)),
                  "training did not write it: put back a copy of the run's telemetry.db and "
                  "config.yaml");
}

RunRecord read_run(const std::string& path) {
  RunRecord run = begun_record(path);
  read_telemetry(TelemetryReader(telemetry_file(path)), run);
  return run;
}

RunRecord read_run(const std::string& path, const TelemetryReader& telemetry) {
  RunRecord run = begun_record(path);
  read_telemetry(telemetry, run);
  return run;
}

}  // namespace assay
