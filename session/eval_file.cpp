#include "session/eval_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "engine/run/own_folder.h"
#include "eval/core_score.h"

namespace assay {

using nlohmann::ordered_json;

namespace {

std::string evaluations_of(const std::string& run) {
  return run + "/" + kEvaluations;
}

// What a file has of CORE.
struct CoreExtent {
  std::map<std::string, int64_t> rows;  // by task
  int64_t max_tokens = 0;               // of a prompt
  bool whole = false;                   // all rows of all tasks of CORE
};

// Of the value of "core" in a file; nothing if there is none.
CoreExtent core_extent(const ordered_json& file) {
  const auto at = [](const ordered_json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? ordered_json() : *found;
  };
  const auto number = [](const ordered_json& value) {
    return value.is_number_integer() ? value.get<int64_t>() : 0;
  };
  const ordered_json core = at(file, "core");
  CoreExtent extent;
  extent.max_tokens = number(at(core, "max_tokens"));
  const ordered_json tasks = at(core, "tasks");
  for (const ordered_json& task : tasks) {
    const ordered_json label = at(task, "label");
    if (label.is_string()) extent.rows[label.get<std::string>()] = number(at(task, "rows"));
  }
  std::vector<std::string> labels;
  for (const auto& [label, rows] : extent.rows) labels.push_back(label);
  extent.whole = is_core(labels) && number(at(core, "max_rows_per_task")) == 0;
  return extent;
}

// Whether `later` has every task of `before` with at least as many rows, and if it has no more than
// these, prompts that are no shorter. All of CORE covers what is only part of it, or of another
// bundle, and nothing else covers all of CORE.
bool covers(const CoreExtent& later, const CoreExtent& before) {
  if (later.whole != before.whole) return later.whole;
  for (const auto& [label, rows] : before.rows) {
    const auto found = later.rows.find(label);
    if (found == later.rows.end() || found->second < rows) return false;
  }
  return later.rows != before.rows || later.max_tokens >= before.max_tokens;
}

// Who measured: beside the losses in the file, and in its "core", which may be of another command.
constexpr const char* kOrigin[] = {"commit", "device", "recipe", "phase"};

bool has_losses(const ordered_json& file) {
  for (const auto& [key, value] : file.items()) {
    if (key.starts_with("val")) return true;
  }
  return false;
}

// What the file has; an empty object if it is not there.
ordered_json recorded_before(const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error) {
    throw UserError("cannot read " + path + ": " + error.message(),
                    "check the permissions of it and of its folder: ls -la");
  }
  if (!there) return ordered_json::object();
  ordered_json file = json_of<ordered_json>(read_regular_file(path));
  if (file.is_object()) return file;
  throw UserError(path + " is not a JSON object", "it is damaged: move it away and evaluate again");
}

// While it lives, no other evaluation changes a file of the folder. The folder itself is locked,
// so no file is left in it. On a file system without locks, and where somebody holds the lock for
// five seconds, there is none: two evaluations seldom end together.
class Turn {
 public:
  explicit Turn(const std::string& folder)
      : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int kTries = 50;
    for (int i = 0; i < kTries && folder_ >= 0 && flock(folder_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (folder_ >= 0) close(folder_);
  }

 private:
  int folder_;
};

}  // namespace

std::string evaluation_file(const std::string& run, int64_t step, const std::string& suffix) {
  const std::string folder = evaluations_of(run);
  require_own_folder(folder);
  make_folders(folder);
  return strprintf("%s/step-%08ld%s.json", folder.c_str(), long(step), suffix.c_str());
}

RecordedEvaluation record_evaluation(const std::string& run, int64_t step, ordered_json result) {
  const std::string path = evaluation_file(run, step);
  const Turn turn(evaluations_of(run));
  ordered_json all = recorded_before(path);
  const bool kept_core = result.contains("core") && !covers(core_extent(result), core_extent(all));
  if (kept_core) {
    result.erase("core");
    if (!has_losses(result)) return {.path = path, .kept_core = true, .changed = false};
  }
  if (result.contains("core")) {
    for (const char* key : kOrigin) {
      if (result.contains(key)) result["core"][key] = result[key];
    }
  }
  // Of what the file keeps and this command did not measure, the origin stays.
  if (!has_losses(result) && (kept_core || has_losses(all))) {
    result.erase("checkpoint");
    for (const char* key : kOrigin) result.erase(key);
  }
  all.update(result);
  write_file_atomic(path, json_text(all, 1) + "\n");
  return {.path = path, .kept_core = kept_core};
}

}  // namespace assay
