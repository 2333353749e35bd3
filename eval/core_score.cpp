#include "eval/core_score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace assay {

namespace {

struct TaskOfCore {
  const char* label;
  double v1, v2;  // accuracy of guessing, in percent
};

constexpr TaskOfCore kTasksOfCore[] = {{"hellaswag_zeroshot", 25, 25},
                                       {"jeopardy", 0, 0},
                                       {"bigbench_qa_wikidata", 0, 0},
                                       {"arc_easy", 25, 25},
                                       {"arc_challenge", 25, 25},
                                       {"copa", 50, 50},
                                       {"commonsense_qa", 20, 40.3},
                                       {"piqa", 50, 50},
                                       {"openbook_qa", 25, 25},
                                       {"lambada_openai", 0, 0},
                                       {"hellaswag", 25, 25},
                                       {"winograd", 50, 50},
                                       {"winogrande", 50, 50},
                                       {"bigbench_dyck_languages", 0, 0},
                                       {"agi_eval_lsat_ar", 20, 25},
                                       {"bigbench_cs_algorithms", 0, 0},
                                       {"bigbench_operators", 0, 0},
                                       {"bigbench_repeat_copy_logic", 0, 0},
                                       {"squad", 0, 0},
                                       {"coqa", 0, 0},
                                       {"boolq", 62, 62},
                                       {"bigbench_language_identification", 9.1, 25}};

double centered_of(double accuracy, double baseline_percent) {
  const double b = baseline_percent / 100;
  return (accuracy - b) / (1 - b);
}

}  // namespace

int64_t chosen_option(const std::vector<PromptScore>& scores) {
  const auto best =
      std::min_element(scores.begin(), scores.end(),
                       [](const PromptScore& a, const PromptScore& b) { return a.nats < b.nats; });
  return best - scores.begin();
}

std::optional<bool> is_right(CoreKind kind, const CoreQuestion& question,
                             const std::vector<PromptScore>& scores) {
  CHECK(scores.size() == question.prompts.size() && !scores.empty(), "%zu scores of %zu prompts",
        scores.size(), question.prompts.size());
  if (!std::all_of(scores.begin(), scores.end(),
                   [](const PromptScore& s) { return std::isfinite(s.nats); })) {
    return std::nullopt;
  }
  if (kind == CoreKind::kLanguageModeling) return scores[0].exact;
  return chosen_option(scores) == question.gold;
}

void CoreTaskResult::add_answer(bool is_right) {
  answers += is_right ? kRight : kWrong;
  right.push_back(is_right ? 1 : 0);
}

void CoreTaskResult::add_not_scored(int64_t line, const std::string& why) {
  answers += kNotScored;
  skipped.emplace_back(line, why);
}

void CoreTaskResult::add_cut_prompts(const std::optional<int64_t>& more) {
  cut_prompts = cut_prompts && more ? std::optional(*cut_prompts + *more) : std::nullopt;
}

void CoreTaskResult::add_rows(const CoreTaskResult& following) {
  add_cut_prompts(following.cut_prompts);
  answers += following.answers;
  right.insert(right.end(), following.right.begin(), following.right.end());
  skipped.insert(skipped.end(), following.skipped.begin(), following.skipped.end());
  scores.insert(scores.end(), following.scores.begin(), following.scores.end());
}

std::optional<double> CoreTaskResult::accuracy() const {
  if (right.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const uint8_t r : right) sum += r;
  return double(sum) / double(scored());
}

std::optional<double> CoreTaskResult::centered() const {
  const std::optional<double> a = accuracy();
  if (!a) return std::nullopt;
  return centered_of(*a, baseline_percent);
}

CoreScore core_score(const std::vector<CoreTaskResult>& tasks) {
  if (tasks.empty()) return {};
  double mean = 0;
  for (const CoreTaskResult& task : tasks) {
    const std::optional<double> centered = task.centered();
    if (!centered) return {};
    mean += *centered / double(tasks.size());
  }
  std::vector<double> resampled(kResamples, 0.0);
  for (const CoreTaskResult& task : tasks) {
    RandomSequence draw({.seed = 0, .stream = stream_id("core.bootstrap." + task.label)});
    for (double& sum : resampled) {
      int64_t right = 0;
      for (int64_t i = 0; i < task.scored(); ++i) {
        right += task.right[draw.below(static_cast<uint32_t>(task.scored()))];
      }
      sum += centered_of(double(right) / double(task.scored()), task.baseline_percent) /
             double(tasks.size());
    }
  }
  double average = 0, squares = 0;
  for (const double r : resampled) average += r / double(kResamples);
  for (const double r : resampled) squares += (r - average) * (r - average);
  return {.core = mean, .standard_error = std::sqrt(squares / double(kResamples - 1))};
}

const std::vector<std::string>& core_labels() {
  static const std::vector<std::string> labels = [] {
    std::vector<std::string> all;
    for (const TaskOfCore& task : kTasksOfCore) all.emplace_back(task.label);
    return all;
  }();
  return labels;
}

bool is_core(const std::vector<std::string>& labels) {
  return std::is_permutation(labels.begin(), labels.end(), core_labels().begin(),
                             core_labels().end());
}

const char* core_version_name(CoreVersion version) {
  return version == CoreVersion::kV1 ? "v1" : "v2";
}

std::optional<std::vector<CoreTaskResult>> as_in_version(std::vector<CoreTaskResult> tasks,
                                                         CoreVersion version) {
  for (CoreTaskResult& task : tasks) {
    const auto* const found =
        std::find_if(std::begin(kTasksOfCore), std::end(kTasksOfCore),
                     [&](const TaskOfCore& one) { return task.label == one.label; });
    if (found == std::end(kTasksOfCore)) return std::nullopt;
    task.baseline_percent = version == CoreVersion::kV1 ? found->v1 : found->v2;
  }
  return tasks;
}

bool is_of_version(const std::vector<CoreTaskResult>& tasks, CoreVersion version) {
  const auto as_there = as_in_version(tasks, version);
  return as_there && std::equal(tasks.begin(), tasks.end(), as_there->begin(),
                                [](const CoreTaskResult& a, const CoreTaskResult& b) {
                                  return a.baseline_percent == b.baseline_percent;
                                });
}

const std::vector<CoreSubset>& core_subsets() {
  static const std::vector<CoreSubset> subsets = {
      {.name = "CORE-18 (without both hellaswag, squad, coqa)",
       .absent = {"hellaswag_zeroshot", "hellaswag", "squad", "coqa"}},
      {.name = "CORE-16 (also without boolq, bigbench_language_identification)",
       .absent = {"hellaswag_zeroshot", "hellaswag", "squad", "coqa", "boolq",
                  "bigbench_language_identification"}},
  };
  return subsets;
}

std::optional<std::vector<CoreTaskResult>> subset_of(const std::vector<CoreTaskResult>& tasks,
                                                     const CoreSubset& subset) {
  std::vector<CoreTaskResult> members;
  std::vector<std::string> labels = subset.absent;
  for (const CoreTaskResult& task : tasks) {
    const auto is = [&](const std::vector<std::string>& some) {
      return std::find(some.begin(), some.end(), task.label) != some.end();
    };
    if (!is(core_labels()) || is(subset.absent)) continue;
    members.push_back(task);
    labels.push_back(task.label);
  }
  return is_core(labels) ? std::optional(members) : std::nullopt;
}

}  // namespace assay
