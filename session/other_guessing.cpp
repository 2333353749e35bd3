#include "session/other_guessing.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "data/json_text.h"
#include "session/eval_file.h"
#include "session/step_measurements.h"

namespace assay {
namespace {

using nlohmann::json;

// In percent, by task; empty of a file without CORE, and of one that cannot be read.
std::map<std::string, double> guessing_in(const std::string& file) {
  std::map<std::string, double> guessing;
  const auto evaluation = [&] {
    try {
      return json_in_file<json>(file);
    } catch (const ReadFailed&) {
      return json();
    }
  }();
  const json::json_pointer tasks("/core/tasks");
  if (!evaluation.is_object() || !evaluation.contains(tasks)) return guessing;
  for (const json& task : evaluation[tasks]) {
    const bool known = task.is_object() && task.contains("label") && task["label"].is_string() &&
                       task.contains("baseline_percent") && task["baseline_percent"].is_number();
    if (known) guessing[task["label"].get<std::string>()] = task["baseline_percent"].get<double>();
  }
  return guessing;
}

// By step; none of a folder that cannot be read.
std::vector<std::string> files_in(const std::string& run) {
  try {
    return evaluation_files(run);
  } catch (const ReadFailed&) {
    return {};
  }
}

}  // namespace

std::string other_guessing_before(const std::string& run, const std::vector<CoreTask>& tasks,
                                  int64_t steps_done) {
  const std::vector<std::string> files = files_in(run);
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const int64_t step = evaluated_step(*file);
    if (step > steps_done) continue;
    const auto before = guessing_in(run + "/" + kEvaluations + "/" + *file);
    if (before.empty()) continue;
    for (const CoreTask& task : tasks) {
      const auto found = before.find(task.label);
      if (found == before.end() || found->second == task.baseline_percent) continue;
      return strprintf(
          "CORE before step %ld has a guessing accuracy of %g%% for %s, the bundle "
          "has %g%%: scores before and after it are not comparable",
          long(step + 1), found->second, task.label.c_str(), task.baseline_percent);
    }
    return "";
  }
  return "";
}

}  // namespace assay
