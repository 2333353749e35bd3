#include "lab/runs/core_questions.h"

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

struct Questions {
  std::string run;
  std::optional<int64_t> max_tokens;               // of a prompt
  std::string bundle;                              // name of its folder; "": not known
  Json tasks;                                      // without their answers; null: not known
  std::map<std::string, std::string> rows_sha256;  // by task, as far as known
};

std::string folder_name(const std::string& path) {
  const fs::path folder = (fs::path(path) / ".").lexically_normal().parent_path();
  return folder.filename().string();
}

// Reads what evals/step-N.json tells of the run's last score.
void add_recorded(Questions& questions, const RunRecord& run, int64_t step) {
  const std::string path = run.path + strprintf("/evals/step-%08ld.json", long(step));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const Json file = json_of<Json>(read_file(path));
  try {
    const Json& core = file.at("core");
    Json tasks = Json::array();
    for (const Json& task : core.at("tasks")) {
      Json one;
      for (const char* key : {"label", "rows", "baseline_percent"}) one[key] = task.at(key);
      if (task.contains("shots")) one["shots"] = task["shots"];
      tasks.push_back(one);
      if (!task.contains("rows_sha256")) continue;
      questions.rows_sha256[task.at("label").get<std::string>()] =
          task["rows_sha256"].get<std::string>();
    }
    questions.tasks = std::move(tasks);
    if (core.contains("max_tokens")) questions.max_tokens = core["max_tokens"].get<int64_t>();
  } catch (const Json::exception&) {  // an old version, or no CORE
    questions.rows_sha256.clear();
  }
}

Questions questions_of(const RunRecord& run, const std::string& name) {
  Questions questions{
      .run = name, .max_tokens = {}, .bundle = "", .tasks = nullptr, .rows_sha256 = {}};
  if (run.config.eval.core) {
    const CoreEvalConfig& core = *run.config.eval.core;
    questions.max_tokens = core.max_tokens > 0 ? core.max_tokens : run.config.run.sequence;
    questions.bundle = folder_name(core.bundle);
  }
  if (const std::optional<Capability> score = capability_of(run))
    add_recorded(questions, run, score->step);
  return questions;
}

std::string difference(const Questions& a, const Questions& b) {
  if (a.max_tokens && b.max_tokens && *a.max_tokens != *b.max_tokens) {
    return strprintf("%s was scored with prompts of at most %ld tokens, %s with %ld", a.run.c_str(),
                     long(*a.max_tokens), b.run.c_str(), long(*b.max_tokens));
  }
  if (a.tasks.is_null() || b.tasks.is_null()) {
    if (a.bundle.empty() || b.bundle.empty() || a.bundle == b.bundle) return "";
    return strprintf("%s was scored on the bundle %s, %s on %s", a.run.c_str(), a.bundle.c_str(),
                     b.run.c_str(), b.bundle.c_str());
  }
  if (a.tasks != b.tasks) return a.run + " was scored on other tasks or rows than " + b.run;
  for (const auto& [task, hash] : a.rows_sha256) {
    const auto other = b.rows_sha256.find(task);
    if (other == b.rows_sha256.end() || other->second == hash) continue;
    return a.run + " was scored on other rows of " + task + " than " + b.run;
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
