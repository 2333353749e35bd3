#include "lab/runs/core_answers.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "eval/core_score.h"
#include "lab/runs/core_questions.h"
#include "lab/runs/core_report.h"
#include "lab/runs/run_summary.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Both are the same double, one of them through SQLite.
constexpr double kSameCore = 1e-9;

CoreAnswers answers_of(const Json& task) {
  CoreAnswers answers{
      .label = task.at("label"), .baseline_percent = task.at("baseline_percent"), .right = {}};
  for (const char c : task.at("answers").get<std::string>()) {
    answers.right.push_back(c == CoreTaskResult::kNotScored ? -1 : c == CoreTaskResult::kRight);
  }
  return answers;
}

// What evals/step-N.json holds of the run's last CORE.
struct RunCore {
  std::vector<CoreAnswers> answers;
  std::string replaced;  // why the answers are not those of the run's score; or ""
};

std::optional<RunCore> read_core(const RunRecord& run) {
  const std::optional<Capability> score = capability_of(run);
  if (!score || score->name != "core") return std::nullopt;
  const std::string path =
      (fs::path(run.path) / "evals" / strprintf("step-%08ld.json", long(score->step))).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    const Json core = json_or_throw<Json>(read_file(path)).at("core");
    if (!is_whole_core(core)) return std::nullopt;
    RunCore found;
    for (const Json& task : core.at("tasks")) {
      if (!task.contains("answers")) return std::nullopt;
      found.answers.push_back(answers_of(task));
    }
    if (core.contains("core") && core["core"].is_number() &&
        std::abs(core["core"].get<double>() - score->value) > kSameCore) {
      found.replaced =
          strprintf("a later evaluation replaced the answers of %s: its CORE was %.4f, %s has %.4f",
                    run.name.c_str(), score->value, fs::path(path).filename().c_str(),
                    core["core"].get<double>());
    }
    return found;
  } catch (const Json::exception& error) {
    throw UserError(path + " is damaged: " + error.what(),
                    "remove it, and score the run again: assay eval " + run.path + " --tasks core");
  }
}

}  // namespace

std::optional<std::vector<CoreAnswers>> core_answers(const RunRecord& run) {
  std::optional<RunCore> core = read_core(run);
  if (!core || !core->replaced.empty()) return std::nullopt;
  return std::move(core->answers);
}

CoreRowComparison compare_core_rows(const SeedGroup& a, const SeedGroup& b) {
  std::vector<const RunRecord*> runs;
  std::vector<std::vector<CoreAnswers>> of_a, of_b;
  std::string replaced;
  for (const auto& [group, answers] : {std::pair(&a, &of_a), std::pair(&b, &of_b)}) {
    for (const RunRecord* run : group->runs) {
      std::optional<RunCore> core = read_core(*run);
      if (!core) return {};
      if (replaced.empty()) replaced = core->replaced;
      answers->push_back(std::move(core->answers));
      runs.push_back(run);
    }
  }
  std::string absent = different_core_questions(runs);
  if (absent.empty()) absent = replaced;
  if (!absent.empty()) return {.difference = {}, .absent = absent};
  const auto mean_a = mean_answers(of_a), mean_b = mean_answers(of_b);
  if (!mean_a || !mean_b) return {};
  return {.difference = core_difference(*mean_a, *mean_b), .absent = ""};
}

std::optional<CoreDifference> core_row_difference(const SeedGroup& a, const SeedGroup& b) {
  return compare_core_rows(a, b).difference;
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
