#include "lab/runs/recorded_core.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/json_text.h"
#include "lab/runs/core_report.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Both are the same double, one of them through SQLite.
constexpr double kSameScore = 1e-9;

template <typename T>
std::optional<T> value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(found->template get<T>());
}

std::optional<double> score_of(const Json& core) {
  if (core.contains("core") && core["core"].is_number()) return core["core"].get<double>();
  if (!core.contains("present")) return std::nullopt;
  const Json& mean = core["present"].at("mean_centered");
  return mean.is_number() ? std::optional(mean.get<double>()) : std::nullopt;
}

CoreFile parsed(const std::string& path) {
  const Json file = json_or_throw<Json>(read_regular_file(path));
  const Json& core = file.at("core");
  CoreFile found{.path = path,
                 .whole = is_whole_core(core),
                 .score = score_of(core),
                 .max_tokens = value_of<int64_t>(core, "max_tokens"),
                 .tasks = {},
                 .damage = {}};
  for (const Json& task : core.at("tasks")) {
    found.tasks.push_back({.label = task.at("label"),
                           .baseline_percent = task.at("baseline_percent"),
                           .rows = value_of<int64_t>(task, "rows"),
                           .shots = value_of<int64_t>(task, "shots"),
                           .rows_sha256 = task.value("rows_sha256", ""),
                           .answers = value_of<std::string>(task, "answers")});
  }
  return found;
}

std::optional<CoreFile> read_core_file(const std::string& run, int64_t step) {
  const std::string path =
      (fs::path(run) / "evals" / strprintf("step-%08ld.json", long(step))).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  CoreFile unread;
  unread.path = path;
  try {
    return parsed(path);
  } catch (const Json::exception& error) {
    unread.damage =
        UserError(path + " is damaged: " + error.what(),
                  "remove it, and score the run again: assay eval " + run + " --tasks core");
  } catch (const UserError& error) {
    unread.damage = error;
  }
  return unread;
}

}  // namespace

bool RecordedCore::is_replaced() const {
  return file && file->score && std::abs(*file->score - value) > kSameScore;
}

std::optional<RecordedCore> read_recorded_core(const std::string& run,
                                               const TelemetryReader& telemetry) {
  std::optional<RecordedCore> last;
  for (const auto& [task, metric] : telemetry.eval_names()) {
    if (task != "core" || metric == "standard_error" || metric == "not_scored_rows") continue;
    const EvalValue score = *telemetry.last_eval(task, metric);
    if (last && last->step >= score.step) continue;
    last.emplace();
    last->name = metric;
    last->value = score.value;
    last->step = score.step;
  }
  if (!last) return last;
  for (const EvalValue& error : telemetry.eval("core", "standard_error")) {
    if (error.step == last->step) last->standard_error = error.value;
  }
  last->file = read_core_file(run, last->step);
  return last;
}

}  // namespace assay
