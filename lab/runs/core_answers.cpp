#include "lab/runs/core_answers.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "eval/core_score.h"
#include "lab/runs/core_questions.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

CoreAnswers answers_of(const RecordedTask& task) {
  CoreAnswers answers{.label = task.label, .baseline_percent = task.baseline_percent, .right = {}};
  for (const char c : *task.answers) {
    answers.right.push_back(c == CoreTaskResult::kNotScored ? -1 : c == CoreTaskResult::kRight);
  }
  return answers;
}

// Of all tasks and rows, whether or not a later evaluation has replaced them; nullopt if the run
// has none. UserError if the file is damaged.
std::optional<std::vector<CoreAnswers>> recorded_answers(const RunRecord& run) {
  if (!run.core || run.core->name != "core" || !run.core->file) return std::nullopt;
  const CoreFile& file = *run.core->file;
  if (file.damage) throw UserError(*file.damage);
  if (!file.whole) return std::nullopt;
  std::vector<CoreAnswers> answers;
  for (const RecordedTask& task : file.tasks) {
    if (!task.answers) return std::nullopt;
    answers.push_back(answers_of(task));
  }
  return answers;
}

// Why the answers are not those of the run's score; "" if they are.
std::string replaced_text(const RunRecord& run) {
  if (!run.core->is_replaced()) return "";
  const CoreFile& file = *run.core->file;
  return strprintf("a later evaluation replaced the answers of %s: its CORE was %.4f, %s has %.4f",
                   run.name.c_str(), run.core->value, fs::path(file.path).filename().c_str(),
                   *file.score);
}

// Why there are no answers, though the run has scored all of CORE; "" if it has not, its file is
// not there, or an earlier version wrote it, which kept none.
std::string lost_text(const RunRecord& run) {
  if (!run.core || run.core->name != "core" || !run.core->file || run.core->file->whole) return "";
  return strprintf("a later evaluation replaced the answers of %s: %s has not all of CORE",
                   run.name.c_str(), fs::path(run.core->file->path).filename().c_str());
}

}  // namespace

std::optional<std::vector<CoreAnswers>> core_answers(const RunRecord& run) {
  std::optional<std::vector<CoreAnswers>> answers = recorded_answers(run);
  if (answers && run.core->is_replaced()) answers.reset();
  return answers;
}

CoreRowComparison compare_core_rows(const SeedGroup& a, const SeedGroup& b) {
  std::vector<const RunRecord*> runs;
  std::vector<std::vector<CoreAnswers>> of_a, of_b;
  std::string lost, replaced;
  for (const auto& [group, answers] : {std::pair(&a, &of_a), std::pair(&b, &of_b)}) {
    for (const RunRecord* run : group->runs) {
      std::optional<std::vector<CoreAnswers>> found = recorded_answers(*run);
      if (!found && lost_text(*run).empty()) return {};
      if (!found) {
        if (lost.empty()) lost = lost_text(*run);
        continue;
      }
      if (replaced.empty()) replaced = replaced_text(*run);
      answers->push_back(std::move(*found));
      runs.push_back(run);
    }
  }
  if (!lost.empty()) return {.difference = {}, .absent = lost};
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
  nlohmann::ordered_json j;
  j["mean"] = d.mean;
  j["standard_error"] = d.standard_error;
  j["interval95"] = {d.low95, d.high95};
  return j;
}

}  // namespace assay
