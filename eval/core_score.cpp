#include "eval/core_score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace assay {

namespace {

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

void CoreTaskResult::add_rows(const CoreTaskResult& following) {
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
  static const std::vector<std::string> labels = {"hellaswag_zeroshot",
                                                  "jeopardy",
                                                  "bigbench_qa_wikidata",
                                                  "arc_easy",
                                                  "arc_challenge",
                                                  "copa",
                                                  "commonsense_qa",
                                                  "piqa",
                                                  "openbook_qa",
                                                  "lambada_openai",
                                                  "hellaswag",
                                                  "winograd",
                                                  "winogrande",
                                                  "bigbench_dyck_languages",
                                                  "agi_eval_lsat_ar",
                                                  "bigbench_cs_algorithms",
                                                  "bigbench_operators",
                                                  "bigbench_repeat_copy_logic",
                                                  "squad",
                                                  "coqa",
                                                  "boolq",
                                                  "bigbench_language_identification"};
  return labels;
}

bool is_core(const std::vector<std::string>& labels) {
  return std::is_permutation(labels.begin(), labels.end(), core_labels().begin(),
                             core_labels().end());
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
