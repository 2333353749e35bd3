#include "lab/map/core_questions.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Questions {
  std::string run;
  int64_t max_tokens = 0;  // of a prompt
  std::string bundle;      // name of its folder
  Json tasks;              // null: not known
};

std::string folder_name(const std::string& path) {
  const fs::path folder = (fs::path(path) / ".").lexically_normal().parent_path();
  return folder.filename().string();
}

// The tasks of the run's score at its last step, without the answers.
Json recorded_tasks(const RunRecord& run) {
  const std::string path = run.path + strprintf("/evals/step-%08ld.json", long(run.steps_done));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return nullptr;
  const Json file = json_of<Json>(read_file(path));
  try {
    Json tasks = Json::array();
    for (const Json& task : file.at("core").at("tasks")) {
      Json one;
      for (const char* key : {"label", "shots", "rows", "baseline_percent"})
        one[key] = task.at(key);
      tasks.push_back(one);
    }
    return tasks;
  } catch (const Json::exception&) {  // an old version, or no CORE
    return nullptr;
  }
}

Questions questions_of(const RunRecord& run) {
  const CoreEvalConfig& core = *run.config.eval.core;
  return {.run = run.path,
          .max_tokens = core.max_tokens > 0 ? core.max_tokens : run.config.run.sequence,
          .bundle = folder_name(core.bundle),
          .tasks = recorded_tasks(run)};
}

std::string difference(const Questions& a, const Questions& b) {
  if (a.max_tokens != b.max_tokens) {
    return strprintf("%s was scored with prompts of at most %ld tokens, %s with %ld", a.run.c_str(),
                     long(a.max_tokens), b.run.c_str(), long(b.max_tokens));
  }
  if (a.tasks.is_null() || b.tasks.is_null()) {
    if (a.bundle == b.bundle) return "";
    return strprintf("%s was scored on the bundle %s, %s on %s", a.run.c_str(), a.bundle.c_str(),
                     b.run.c_str(), b.bundle.c_str());
  }
  if (a.tasks == b.tasks) return "";
  return a.run + " was scored on other tasks or rows than " + b.run;
}

}  // namespace

std::string different_core_questions(std::span<const RunRecord> runs) {
  std::optional<Questions> first;
  for (const RunRecord& run : runs) {
    if (!run.config.eval.core) continue;
    Questions questions = questions_of(run);
    if (!first) {
      first = std::move(questions);
    } else if (const std::string text = difference(*first, questions); !text.empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace assay
