// The CORE score from the scores of prompts.
//
//   multiple choice, schema  the answer is the option with the smallest mean nats over its counted
//                            tokens, the first of equals
//   language modeling        right if every counted token is the most likely one
//   accuracy = right / scored
//   centered = (accuracy - b / 100) / (1 - b / 100), b: the bundle's accuracy of guessing, percent
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

// A model's score of a prompt's counted tokens.
struct PromptScore {
  double nats = 0;     // mean
  bool exact = false;  // each token is the most likely one
  int64_t tokens = 0;  // that count
};

// The option with the smallest mean, the first of equals.
int64_t chosen_option(const std::vector<PromptScore>& scores);
// nullopt if a score is not finite.
std::optional<bool> is_right(CoreKind kind, const CoreQuestion& question,
                             const std::vector<PromptScore>& scores);

// What a model made of a row.
struct CoreRowScores {
  int64_t line = 0;                       // of the file, 0-based
  int64_t gold = 0;                       // the right option
  std::vector<PromptScore> options = {};  // language modeling: one; not scored: none
  std::string not_scored = {};            // why; "" = it was scored
};

struct CoreTaskResult {
  std::string label;
  CoreKind kind = CoreKind::kMultipleChoice;
  int64_t shots = 0, rows = 0;
  double baseline_percent = 0;
  // Prompts of scored rows that were too long and lost their beginning; nullopt: an earlier version
  // did not count them.
  std::optional<int64_t> cut_prompts = 0;
  // One character per row of this part, in order: kRight, kWrong or kNotScored. The two lists below
  // hold the same rows.
  std::string answers;
  std::vector<uint8_t> right;                            // 0 or 1 for each scored row
  std::vector<std::pair<int64_t, std::string>> skipped;  // 0-based line of the file, reason
  std::vector<CoreRowScores> scores = {};  // of the rows of `answers`; empty if read from a file

  static constexpr char kRight = '1', kWrong = '0', kNotScored = '-';
  void add_answer(bool is_right);
  void add_not_scored(int64_t line, const std::string& why);
  void add_cut_prompts(const std::optional<int64_t>& more);
  void add_rows(const CoreTaskResult& following);

  int64_t scored() const { return int64_t(right.size()); }
  std::optional<double> accuracy() const;
  std::optional<double> centered() const;  // both absent if no row was scored
};

struct CoreScore {
  std::optional<double> core;  // absent if a task has no score
  double standard_error = 0;
};
constexpr int64_t kResamples = 1000;
CoreScore core_score(const std::vector<CoreTaskResult>& tasks);

// The labels of the 22 tasks whose mean is CORE, whatever the list of a bundle is.
const std::vector<std::string>& core_labels();
// Whether these are the 22 tasks, each once, in any order.
bool is_core(const std::vector<std::string>& labels);

// CORE has two versions, of the same tasks, rows and prompts: in September 2025 its authors
// corrected the accuracies of guessing of three tasks. Scores of one are not comparable with those
// of the other.
enum class CoreVersion { kV1, kV2 };
const char* core_version_name(CoreVersion version);  // "v1", "v2"
// The tasks with the version's accuracies of guessing; nullopt if one of them is not of CORE.
std::optional<std::vector<CoreTaskResult>> as_in_version(std::vector<CoreTaskResult> tasks,
                                                         CoreVersion version);
// Whether they have these already.
bool is_of_version(const std::vector<CoreTaskResult>& tasks, CoreVersion version);

// Means over fewer tasks, for bundles without all files. Nobody publishes them, but they follow
// from published accuracies.
struct CoreSubset {
  std::string name;                 // "CORE-18 (without both hellaswag, squad, coqa)"
  std::vector<std::string> absent;  // labels left out
};
const std::vector<CoreSubset>& core_subsets();
// The tasks of the subset, in the order of `tasks`; nullopt if these have not each of them once.
std::optional<std::vector<CoreTaskResult>> subset_of(const std::vector<CoreTaskResult>& tasks,
                                                     const CoreSubset& subset);

}  // namespace assay
