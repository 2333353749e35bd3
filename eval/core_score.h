// From what a model makes of the questions to the CORE score.
//
//   multiple choice, schema: the option with the smallest mean nats over its counted tokens, the first of equals
//   language modeling: right if every counted token is the most likely one
//   accuracy = right / scored        centered = (accuracy - b / 100) / (1 - b / 100), b: of guessing, in percent
//   CORE = mean of centered over the tasks
//
// The standard error is the standard deviation over `kResamples` bootstrap samples of the rows
// within each task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/core_prompts.h"

namespace assay {

// What a model makes of a prompt's counted tokens.
struct PromptScore {
  double nats = 0;     // mean
  bool exact = false;  // each one the most likely
};

// Nothing where a score is not finite.
std::optional<bool> is_right(CoreKind kind, const CoreQuestion& question,
                             const std::vector<PromptScore>& scores);

struct CoreTaskResult {
  std::string label;
  CoreKind kind = CoreKind::kMultipleChoice;
  int64_t shots = 0, rows = 0;
  double baseline_percent = 0;
  // Of the rows asked, in their order: kRight, kWrong or kNotScored. What follows is made from it.
  std::string answers;
  std::vector<uint8_t> right;                            // 0 or 1 for each scored row
  std::vector<std::pair<int64_t, std::string>> skipped;  // line of the file from 0, why

  static constexpr char kRight = '1', kWrong = '0', kNotScored = '-';
  void add_answer(bool is_right);
  void add_not_scored(int64_t line, const std::string& why);

  int64_t scored() const { return int64_t(right.size()); }
  std::optional<double> accuracy() const;
  std::optional<double> centered() const;  // both absent where no row was scored
};

struct CoreScore {
  std::optional<double> core;  // absent where a task has no score
  double standard_error = 0;
};
constexpr int64_t kResamples = 1000;
CoreScore core_score(const std::vector<CoreTaskResult>& tasks);

// Means that were published because not everyone has all files: the tasks of `results` of which
// each subset consists, as far as all of them are there.
struct CoreSubset {
  std::string name;                 // "18 tasks, without hellaswag, squad and coqa"
  std::vector<std::string> absent;  // labels it does without
};
const std::vector<CoreSubset>& core_subsets();
// The tasks of the subset; nothing where one is missing.
std::optional<std::vector<CoreTaskResult>> subset_of(const std::vector<CoreTaskResult>& tasks,
                                                     const std::vector<std::string>& all_labels,
                                                     const CoreSubset& subset);

}  // namespace assay
