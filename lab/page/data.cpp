#include "lab/page/data.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "engine/config/yaml.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/sqlite.h"
#include "lab/compare/anchor_recipe.h"
#include "lab/matrix/folder.h"
#include "lab/page/anchor.h"
#include "lab/page/dissect.h"
#include "lab/page/matrix.h"
#include "lab/page/models.h"
#include "lab/page/precision.h"
#include "lab/page/ranks.h"
#include "lab/page/router.h"
#include "lab/page/samples.h"
#include "lab/page/series.h"
#include "lab/runs/run_labels.h"
#include "lab/runs/run_record.h"
#include "lab/runs/run_summary.h"
#include "models/audit/audit.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// What the page of the runs lacks.
struct Problems {
  std::vector<UserError> of_runs;  // a run's whole telemetry
  bool read_failed = false;
};

Json audit_json(const Config& config) {
  const Audit a = audit(config);
  const ParameterCounts& p = a.parameters;
  Json json;
  json["embedding"] = p.embedding;
  json["head"] = p.head;
  json["norms"] = p.norms;
  json["attention"] = p.attention;
  json["dense_ffn"] = p.dense_ffn;
  json["router"] = p.router;
  json["routed_experts"] = p.routed_experts;
  json["shared_experts"] = p.shared_experts;
  json["total"] = a.total;
  json["active"] = a.active;
  json["ffn_active_width"] = a.ffn_active_width;
  json["flops_per_token"] = a.flops_per_token;
  json["weight_bytes"] = a.weight_bytes;
  json["master_bytes"] = a.master_bytes;
  json["gradient_bytes"] = a.gradient_bytes;
  json["moment_bytes"] = a.moment_bytes;
  return json;
}

// Fields that follow from the configuration alone.
void add_plan(const Config& config, Json& json) {
  json["planned_steps"] = config.run.steps;
  json["tokens_per_step"] = config.run.batch_tokens;
  json["seed"] = config.run.seed;
  json["recipe"] = config.precision.recipe;
  json["hidden"] = config.model.hidden;
  json["layers"] = config.model.layers;
  json["vocab_size"] = config.model.vocab_size;
  json["moe"] = nullptr;
  if (moe_blocks(config.model) > 0) {
    json["moe"] = Json::object();
    json["moe"]["experts"] = config.model.moe->experts;
    json["moe"]["top_k"] = config.model.moe->top_k;
    json["moe"]["shared"] = config.model.moe->shared;
    json["moe"]["window"] = config.telemetry.window;
  }
  json["audit"] = audit_json(config);
}

Json evals_json(const TelemetryReader& telemetry, int64_t points) {
  Json json = Json::array();
  for (const auto& [task, metric] : telemetry.eval_names()) {
    std::vector<StepValue> curve;
    for (const EvalValue& v : telemetry.eval(task, metric)) {
      curve.push_back({.step = v.step, .value = v.value});
    }
    Json of = series_json(curve, points);
    of["task"] = task;
    of["metric"] = metric;
    json.push_back(std::move(of));
  }
  return json;
}

Json scalars_json(const TelemetryReader& telemetry, int64_t points) {
  Json json = Json::object();
  for (const std::string& name : telemetry.scalar_names()) {
    if (name == "hash") continue;  // not a quantity
    json[name] = series_json(telemetry.scalar(name), points);
  }
  return json;
}

Json spans_json(const Database& database, int64_t points) {
  std::map<std::string, std::vector<StepValue>> spans;
  Statement s(database, "SELECT name, step, milliseconds FROM span ORDER BY step");
  while (s.step()) {
    spans[s.text(0)].push_back({.step = s.integer(1), .value = s.number(2)});
  }
  Json json = Json::object();
  for (const auto& [name, curve] : spans) json[name] = series_json(curve, points);
  return json;
}

// A part of a run, read from its own files; null, and a note, if they cannot be read.
template <typename F>
void add_part(const char* key, const char* what, const F& part, Json& json, Problems& problems) {
  json[key] = nullptr;
  try {
    json[key] = part();
  } catch (const UserError& error) {
    problems.read_failed |= is_read_failed(error);
    json["notes"].push_back(
        strprintf("%s cannot be shown: %s (%s).", what, error.what(), error.hint().c_str()));
  }
}

void add_telemetry(const RunRecord& run, const TelemetryReader& telemetry,
                   const ReportLimits& limits, Json& json, Problems& problems) {
  json["commit"] = run.commit;
  json["dirty"] = run.dirty;
  json["device"] = run.device;
  json["cpu"] = run.cpu;
  if (!run.instructions.empty()) json["instructions"] = run.instructions;
  json["started"] = run.started;
  if (!run.recipe.empty()) json["recipe"] = run.recipe;
  json["end"] = run.end;
  json["steps_done"] = run.steps_done;
  json["tokens"] = run.tokens;
  json["scalars"] = scalars_json(telemetry, limits.curve_points);
  json["evals"] = evals_json(telemetry, limits.curve_points);
  json["spans"] = spans_json(telemetry.database(), limits.curve_points);
  json["precision"] = report_precision(telemetry, limits);
  json["ranks"] = report_ranks(telemetry, limits);
  json["summary"] = summary_json(run);
  if (run.end.empty()) {
    json["notes"].push_back(strprintf(
        "No end is recorded: the run is still training, or was killed. It is shown up to step %ld "
        "of %ld.",
        long(run.steps_done), long(run.config.run.steps)));
  }
  if (run.val_loss_nats.empty()) json["notes"].push_back("No validation loss was measured yet.");
  const size_t notes = json["notes"].size();
  add_part(
      "router", "The routers", [&] { return report_router(run, telemetry, limits); }, json,
      problems);
  const bool was_read = json["notes"].size() == notes;
  if (moe_blocks(run.config.model) > 0 && json["router"].is_null() && was_read) {
    json["notes"].push_back("The model has experts, but its routers have no logged step yet.");
  }
}

Json run_json(const std::string& path, const std::string& label, const ReportLimits& limits,
              Wait wait, PageRun& run, Problems& problems) {
  const std::string config_path = (require_run(path) / "config.yaml").string();
  const Config config = load_config(config_path, {});
  run.record.path = path;
  run.record.name = label;
  run.record.config = config;
  Json json;
  json["label"] = label;
  json["path"] = path;
  json["problem"] = nullptr;
  json["notes"] = Json::array();
  add_plan(config, json);
  json["config"] = read_regular_file(config_path);
  add_part(
      "samples", "The samples", [&] { return report_samples(path, limits); }, json, problems);
  add_part(
      "dissect", "What its parts are worth", [&] { return report_dissect(path); }, json, problems);
  json["router"] = nullptr;
  Json whole = json;
  try {
    const TelemetryReader telemetry(telemetry_file(path), wait);
    RunRecord record = read_run(path, telemetry);
    record.name = label;
    add_telemetry(record, telemetry, limits, whole, problems);
    run = {.record = std::move(record), .readable = true};
    return whole;
  } catch (const UserError& error) {
    problems.of_runs.push_back(error);
    problems.read_failed |= is_read_failed(error);
    json["problem"] = std::string(error.what()) + " (" + error.hint() + ")";
    return json;
  }
}

}  // namespace

bool ReportLimits::shrink(double share) {
  share = std::clamp(share, 0.0, 0.5);
  bool shrunk = false;
  const auto reduce = [&](int64_t& limit, int64_t least) {
    if (limit <= least) return;
    limit = std::max(least, int64_t(share * double(limit)));
    shrunk = true;
  };
  reduce(curve_points, 32);
  reduce(measure_steps, 8);
  reduce(load_steps, 2);
  reduce(sample_steps, 2);
  reduce(sample_bytes, 400);
  return shrunk;
}

Json report_data(const std::vector<std::string>& paths, const ReportLimits& limits,
                 NoTelemetry none, const ReportChoices& choices, bool* read_failed) {
  const bool is_matrix = paths.size() == 1 && is_matrix_folder(paths.front());
  for (const std::string& path : paths) {
    if (paths.size() > 1 && is_matrix_folder(path)) {
      throw UserError(path + " is the folder of a matrix, given beside others",
                      "give it alone, or the runs in it");
    }
  }
  if (is_matrix && !choices.contract.empty()) {
    throw UserError("--contract " + choices.contract + " with the matrix " + paths.front(),
                    "a matrix has a table for each of its contracts: leave out --contract");
  }
  const std::vector<std::string> runs = is_matrix ? matrix_runs(paths.front()) : paths;
  const std::vector<std::string> labels = run_labels(runs);
  Json data;
  data["report_version"] = kReportVersion;
  data["limits"] = {{"curve_points", limits.curve_points}, {"measure_steps", limits.measure_steps},
                    {"load_steps", limits.load_steps},     {"load_bins", limits.load_bins},
                    {"sample_steps", limits.sample_steps}, {"sample_bytes", limits.sample_bytes}};
  data["anchor"] = nullptr;
  if (!choices.anchor.empty()) {
    data["anchor"] = report_anchor(choices.anchor, limits.curve_points);
  }
  data["runs"] = Json::array();
  Problems problems;
  std::vector<PageRun> page_runs(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    data["runs"].push_back(
        run_json(runs[i], labels[i], limits, choices.wait, page_runs[i], problems));
    if (data["anchor"].is_null() || !page_runs[i].readable) continue;
    const std::string obstacle = anchor_obstacle(page_runs[i].record);
    if (!obstacle.empty()) data["anchor"]["not_comparable"].push_back(labels[i] + ": " + obstacle);
  }
  if (none == NoTelemetry::kRefuse && problems.of_runs.size() == runs.size())
    throw problems.of_runs.front();
  add_models(page_runs, choices.contract, data, problems.read_failed);
  if (read_failed != nullptr) *read_failed = problems.read_failed;
  data["matrix"] = nullptr;
  if (is_matrix) {
    data["comparison"] = nullptr;  // every contract has its own
    data["matrix"] = report_matrix(paths.front());
  }
  return data;
}

std::vector<std::string> report_warnings(const Json& data) {
  std::vector<std::string> warnings;
  const Json& anchor = data["anchor"];
  if (!anchor.is_null() && !anchor["problem"].is_null()) {
    warnings.push_back(anchor["name"].get<std::string>() + ": " +
                       anchor["problem"].get<std::string>());
  }
  for (const Json& run : data["runs"]) {
    const std::string label = run["label"];
    if (!run["problem"].is_null()) {
      warnings.push_back(label + " has no curves: " + run["problem"].get<std::string>());
    }
    for (const Json& note : run["notes"]) {
      warnings.push_back(label + ": " + note.get<std::string>());
    }
  }
  if (!data["matrix"].is_null()) {
    for (const Json& unread : data["matrix"]["unread"]) warnings.push_back(unread);
  }
  return warnings;
}

}  // namespace assay
