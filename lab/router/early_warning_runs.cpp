#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/read_failed.h"
#include "data/sha256.h"
#include "lab/matrix/matrix.h"
#include "lab/router/analysis.h"
#include "lab/router/early_warning.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/seed_groups.h"

namespace assay {

namespace {

// Normalised, so that runs of other E and K can be compared.
constexpr const char* kWarningMeasures[] = {"max_load_norm", "cv_norm",    "entropy_norm",
                                            "active_norm",   "gini",       "margin",
                                            "lead",          "bias_range", "gate_entropy_norm"};

// Whether the smallest of the layers' values is taken beside their mean, or the largest.
bool low_is_uneven(const std::string& measure) {
  return measure == "entropy_norm" || measure == "active_norm" || measure == "margin" ||
         measure == "gate_entropy_norm";
}

void add_values(WarningRun& run, const RouterHistory& history, double share) {
  const int64_t from = run.step_at(share);
  const auto step = std::lower_bound(history.steps.begin(), history.steps.end(), from);
  if (step == history.steps.end() || double(*step) > 1.5 * std::max<double>(double(from), 2))
    return;
  run.read_at[share] = *step;
  for (const char* measure : kWarningMeasures) {
    std::vector<double> values;
    for (const LayerHistory& layer : history.layers) {
      if (const auto value = layer.at(measure, *step)) values.push_back(*value);
    }
    if (values.empty()) continue;
    double sum = 0;
    for (const double v : values) sum += v;
    const std::string name = measure;
    if (low_is_uneven(measure)) {
      run.value[{name + ", min", share}] = *std::min_element(values.begin(), values.end());
    } else {
      run.value[{name + ", max", share}] = *std::max_element(values.begin(), values.end());
    }
    run.value[{name + ", mean", share}] = sum / double(values.size());
  }
}

std::string study_of(const std::string& path) {
  return std::filesystem::weakly_canonical(path).parent_path().string();
}

// Why a run cannot be judged; "" if it can.
std::string why_not(const RunRecord& record, const RouterAnalysis& analysis) {
  // Its verdict would be that of a rule like those which are judged here.
  if (!record.finished() && analysis.end == "collapse_stop") return "stopped by its guard";
  if (!record.finished()) return "not finished";
  return analysis.verdict.state == RouterState::kTooEarly ? "too early for a verdict" : "";
}

// Equal for runs of the same numbers: a run and its copies.
std::string run_identity(const RunRecord& record) {
  return model_identity(record) + strprintf("run.seed=%ld\n", long(record.config.run.seed)) +
         data_identity(record);
}

WarningRun ended_run(const std::string& path, const RunRecord& record,
                     const RouterAnalysis& analysis) {
  WarningRun run{.name = path,
                 .configuration = configuration_of(record.config),
                 .study = study_of(path),
                 .end = analysis.verdict.state,
                 .steps = record.config.run.steps,
                 .saturated_at = {},
                 .value = {}};
  for (const RouterLayer& layer : analysis.layers) {
    if (layer.saturated_at && (!run.saturated_at || *layer.saturated_at < *run.saturated_at)) {
      run.saturated_at = layer.saturated_at;
    }
  }
  return run;
}

}  // namespace

std::string configuration_of(const Config& config) {
  Config shared = config;
  shared.precision = {};
  shared.optimizer.state = OptimizerConfig().state;
  shared.contract = {};
  // Under this contract every seed takes its own steps.
  if (config.contract.kind == ContractKind::kSeconds) shared.run.steps = 0;
  return sha256_hex(model_identity(shared));
}

EndedRuns read_ended_runs(
    const std::vector<std::string>& paths,
    const std::function<std::string(WarningRun&, const RunRecord&, const TelemetryReader&)>& add) {
  EndedRuns ended;
  // A run counts once, however it is named and however often it was copied.
  std::set<std::string> seen_paths;
  std::map<std::string, std::string> counted;  // run_identity() -> path
  for (const std::string& path : paths) {
    if (!seen_paths.insert(std::filesystem::weakly_canonical(path).string()).second) continue;
    const auto leave = [&](const std::string& why) {
      ended.left_out.push_back({.run = path, .why = why});
    };
    std::optional<RunRecord> record;
    if (const auto problem = problem_of([&] { record = read_run(path); })) {
      leave(problem->what());
      continue;
    }
    if (moe_blocks(record->config.model) == 0) {
      leave("dense");
      continue;
    }
    const auto problem = problem_of([&] {
      const TelemetryReader telemetry(telemetry_file(path));
      const RouterAnalysis analysis = analyse_router(*record, telemetry, {});
      std::string why = why_not(*record, analysis);
      const std::string identity = run_identity(*record);
      const auto before = counted.find(identity);
      if (why.empty() && before != counted.end()) {
        ended.left_out.push_back({.run = path, .why = "", .copy_of = before->second});
        return;
      }
      if (why.empty()) {
        WarningRun run = ended_run(path, *record, analysis);
        why = add(run, *record, telemetry);
        if (why.empty()) {
          ended.runs.push_back(std::move(run));
          counted.emplace(identity, path);
        }
      }
      if (!why.empty()) leave(why);
    });
    if (problem) leave(problem->what());
  }
  return ended;
}

EarlyWarning early_warning(const std::vector<std::string>& paths) {
  EndedRuns ended = read_ended_runs(paths,
                                    [](WarningRun& run, const RunRecord& record,
                                       const TelemetryReader& telemetry) -> std::string {
                                      const RouterHistory history = read_router_history(
                                          telemetry, record.config.model.moe->top_k,
                                          record.config.telemetry.window);
                                      for (const double share : kWarningShares)
                                        add_values(run, history, share);
                                      return "";
                                    });
  EarlyWarning warning = judge_warnings(std::move(ended.runs));
  warning.left_out = std::move(ended.left_out);
  return warning;
}

}  // namespace assay
