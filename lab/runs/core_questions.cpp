#include "lab/runs/core_questions.h"

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "base/check.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

// What is not known is not compared.
struct Questions {
  std::string run;
  std::optional<int64_t> max_tokens;                 // of a prompt
  std::string bundle;                                // name of its folder; "": not known
  std::map<std::string, const RecordedTask*> tasks;  // by label; empty: not known
};

std::string folder_name(const std::string& path) {
  const fs::path folder = (fs::path(path) / ".").lexically_normal().parent_path();
  return folder.filename().string();
}

// A later evaluation may have replaced what evals/step-N.json has of the run's score, with other
// questions: then it tells nothing. Nor does a file that cannot be read.
bool has_questions(const RunRecord& run) {
  return run.core && run.core->file && !run.core->file->damage && !run.core->is_replaced();
}

Questions questions_of(const RunRecord& run, const std::string& name) {
  Questions questions{.run = name, .max_tokens = {}, .bundle = "", .tasks = {}};
  if (run.config.eval.core) {
    const CoreEvalConfig& core = *run.config.eval.core;
    questions.max_tokens = core.max_tokens > 0 ? core.max_tokens : run.config.run.sequence;
    questions.bundle = folder_name(core.bundle);
  }
  if (!has_questions(run)) return questions;
  const CoreFile& file = *run.core->file;
  for (const RecordedTask& task : file.tasks) questions.tasks[task.label] = &task;
  if (file.max_tokens) questions.max_tokens = file.max_tokens;
  return questions;
}

template <typename T>
bool differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

std::string difference(const Questions& a, const Questions& b) {
  if (differ(a.max_tokens, b.max_tokens)) {
    return strprintf("%s was scored with prompts of at most %ld tokens, %s with %ld", a.run.c_str(),
                     long(*a.max_tokens), b.run.c_str(), long(*b.max_tokens));
  }
  if (a.tasks.empty() || b.tasks.empty()) {
    if (a.bundle.empty() || b.bundle.empty() || a.bundle == b.bundle) return "";
    return strprintf("%s was scored on the bundle %s, %s on %s", a.run.c_str(), a.bundle.c_str(),
                     b.run.c_str(), b.bundle.c_str());
  }
  const std::string others = a.run + " was scored on other tasks or rows than " + b.run;
  if (a.tasks.size() != b.tasks.size()) return others;
  for (const auto& [label, task] : a.tasks) {
    const auto found = b.tasks.find(label);
    if (found == b.tasks.end()) return others;
    const RecordedTask& other = *found->second;
    if (differ(task->rows, other.rows) || differ(task->shots, other.shots)) return others;
    if (task->baseline_percent != other.baseline_percent) {
      return strprintf("%s was scored with a guessing accuracy of %g%% for %s, %s with %g%%",
                       a.run.c_str(), task->baseline_percent, label.c_str(), b.run.c_str(),
                       other.baseline_percent);
    }
    if (task->rows_sha256 == other.rows_sha256) continue;
    if (task->rows_sha256.empty() || other.rows_sha256.empty()) continue;
    return a.run + " was scored on other rows of " + label + " than " + b.run;
  }
  return "";
}

}  // namespace

std::string different_core_questions(std::span<const RunRecord* const> runs,
                                     std::string RunRecord::*shown) {
  std::vector<Questions> before;
  for (const RunRecord* run : runs) {
    Questions questions = questions_of(*run, run->*shown);
    // With all: one of an old version tells little, and differs from none.
    for (const Questions& other : before) {
      if (const std::string text = difference(other, questions); !text.empty()) return text;
    }
    before.push_back(std::move(questions));
  }
  return "";
}

}  // namespace assay
