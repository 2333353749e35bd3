#include "lab/runs/core_questions.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "lab/runs/run_summary.h"

namespace assay {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Of one task, without its answers; what is not known is not compared.
struct TaskQuestions {
  std::optional<int64_t> rows, shots;
  std::optional<double> baseline_percent;
  std::string rows_sha256;
};

struct Questions {
  std::string run;
  std::optional<int64_t> max_tokens;           // of a prompt
  std::string bundle;                          // name of its folder; "": not known
  std::map<std::string, TaskQuestions> tasks;  // by label; empty: not known
};

template <typename T>
std::optional<T> value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(found->template get<T>());
}

// The score that the answers of a recorded CORE give: of the whole, or of the tasks that there are.
std::optional<double> recorded_score(const Json& core) {
  if (core.contains("core") && core["core"].is_number()) return core["core"].get<double>();
  if (!core.contains("present")) return std::nullopt;
  const Json& mean = core["present"].at("mean_centered");
  return mean.is_number() ? std::optional(mean.get<double>()) : std::nullopt;
}

std::string folder_name(const std::string& path) {
  const fs::path folder = (fs::path(path) / ".").lexically_normal().parent_path();
  return folder.filename().string();
}

// Both are the same double, one of them through SQLite.
constexpr double kSameScore = 1e-9;

// Reads what evals/step-N.json tells of a run's score. A later evaluation may have replaced it
// there, with other questions: then it tells nothing. Nor does a file that cannot be read.
void add_recorded(Questions& questions, const RunRecord& run, const Capability& score) {
  const std::string path = run.path + strprintf("/evals/step-%08ld.json", long(score.step));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  try {
    const Json file = json_or_throw<Json>(read_file(path));
    const Json& core = file.at("core");
    const std::optional<double> recorded = recorded_score(core);
    if (recorded && std::abs(*recorded - score.value) > kSameScore) return;
    std::map<std::string, TaskQuestions> tasks;
    for (const Json& task : core.at("tasks")) {
      tasks[task.at("label").get<std::string>()] = {
          .rows = value_of<int64_t>(task, "rows"),
          .shots = value_of<int64_t>(task, "shots"),
          .baseline_percent = value_of<double>(task, "baseline_percent"),
          .rows_sha256 = task.value("rows_sha256", "")};
    }
    questions.tasks = std::move(tasks);
    if (const auto tokens = value_of<int64_t>(core, "max_tokens")) questions.max_tokens = tokens;
  } catch (const Json::exception&) {
  } catch (const UserError&) {
  }
}

Questions questions_of(const RunRecord& run, const std::string& name) {
  Questions questions{.run = name, .max_tokens = {}, .bundle = "", .tasks = {}};
  if (run.config.eval.core) {
    const CoreEvalConfig& core = *run.config.eval.core;
    questions.max_tokens = core.max_tokens > 0 ? core.max_tokens : run.config.run.sequence;
    questions.bundle = folder_name(core.bundle);
  }
  if (const std::optional<Capability> score = capability_of(run))
    add_recorded(questions, run, *score);
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
    const TaskQuestions& other = found->second;
    if (differ(task.rows, other.rows) || differ(task.shots, other.shots) ||
        differ(task.baseline_percent, other.baseline_percent))
      return others;
    if (task.rows_sha256 == other.rows_sha256) continue;
    if (task.rows_sha256.empty() || other.rows_sha256.empty()) continue;
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
