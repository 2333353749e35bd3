#include "lab/runs/core_answers.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "eval/core_score.h"
#include "lab/runs/core_report.h"
#include "lab/runs/run_summary.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

CoreAnswers answers_of(const Json& task) {
  CoreAnswers answers{
      .label = task.at("label"), .baseline_percent = task.at("baseline_percent"), .right = {}};
  for (const char c : task.at("answers").get<std::string>()) {
    answers.right.push_back(c == CoreTaskResult::kNotScored ? -1 : c == CoreTaskResult::kRight);
  }
  return answers;
}

std::optional<std::vector<CoreAnswers>> mean_answers_of(const SeedGroup& group) {
  std::vector<std::vector<CoreAnswers>> all;
  for (const RunRecord* record : group.runs) {
    auto answers = core_answers(*record);
    if (!answers) return std::nullopt;
    all.push_back(std::move(*answers));
  }
  return mean_answers(all);
}

}  // namespace

std::optional<std::vector<CoreAnswers>> core_answers(const RunRecord& run) {
  const std::optional<Capability> score = capability_of(run);
  if (!score || score->name != "core") return std::nullopt;
  const std::string path =
      (std::filesystem::path(run.path) / "evals" / strprintf("step-%08ld.json", long(score->step)))
          .string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    const Json core = json_or_throw<Json>(read_file(path)).at("core");
    if (!is_whole_core(core)) return std::nullopt;
    std::vector<CoreAnswers> all;
    for (const Json& task : core.at("tasks")) {
      if (!task.contains("answers")) return std::nullopt;
      all.push_back(answers_of(task));
    }
    return all;
  } catch (const Json::exception& error) {
    throw UserError(path + " is damaged: " + error.what(),
                    "remove it, and score the run again: assay eval " + run.path + " --tasks core");
  }
}

std::optional<CoreDifference> core_row_difference(const SeedGroup& a, const SeedGroup& b) {
  const auto of_a = mean_answers_of(a), of_b = mean_answers_of(b);
  return of_a && of_b ? core_difference(*of_a, *of_b) : std::nullopt;
}

std::string core_row_text(const std::string& a, const std::string& b, const CoreDifference& d) {
  const bool apart = d.low95 > 0 || d.high95 < 0;
  return strprintf("CORE of %s minus %s: %+.4f, 95%% interval over the rows %+.4f to %+.4f",
                   a.c_str(), b.c_str(), d.mean, d.low95, d.high95) +
         (apart ? "" : ", includes 0: these rows do not tell them apart");
}

nlohmann::ordered_json core_difference_json(const CoreDifference& d) {
  Json j;
  j["mean"] = d.mean;
  j["standard_error"] = d.standard_error;
  j["interval95"] = {d.low95, d.high95};
  return j;
}

}  // namespace assay
