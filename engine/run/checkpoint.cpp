#include "engine/run/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/file.h"
#include "data/sha256.h"
#include "engine/run/run_dir.h"
#include "engine/run/safetensors.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kTemporary = ".tmp-";
constexpr const char* kBest = "best";
constexpr int kFormat = 1;

std::string step_name(int64_t step) {
  return strprintf("step-%08ld", static_cast<long>(step));
}

// The step of a checkpoint's name, or -1.
int64_t step_of(const std::string& name) {
  if (name.rfind("step-", 0) != 0 || name.size() < 13 || name.size() > 20) return -1;
  int64_t step = 0;
  for (size_t i = 5; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') return -1;
    step = step * 10 + (name[i] - '0');
  }
  return step;
}

void sync_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

void rename_folder(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return;
  throw UserError("cannot rename " + from + " to " + to + ": " + strerror(errno),
                  "check the permissions there; earlier checkpoints are not changed");
}

// Renames before removing, so that an interruption leaves no partial checkpoint under its name.
void remove_checkpoint(const std::string& folder) {
  const fs::path path = folder;
  const fs::path hidden = path.parent_path() / (kTemporary + ("old-" + path.filename().string()));
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  rename_folder(folder, hidden.string());
  fs::remove_all(hidden, ignored);
}

// Removes what an interrupted save left. The run is locked, so no other process writes here.
void remove_leftovers(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().rfind(kTemporary, 0) == 0)
      fs::remove_all(entry.path(), ignored);
  }
}

// A folder under a temporary name until publish(); removed if that is never called.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) { make_folders(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  void publish(const std::string& name) {
    sync_folder(path_);
    if (fs::exists(name)) remove_checkpoint(name);
    rename_folder(path_, name);
    sync_folder(fs::path(name).parent_path().string());
    path_.clear();
  }

 private:
  std::string path_;
};

json parse_file(const std::string& path) {
  try {
    return json::parse(read_file(path));
  } catch (const json::exception&) {
    throw UserError(path + ": is not JSON",
                    "the checkpoint is damaged: remove its folder to use the previous one");
  }
}

// nullopt if the folder has no readable manifest.
std::optional<bool> is_milestone(const std::string& folder) {
  std::ifstream file(folder + "/" + kManifest);
  const json manifest = json::parse(file, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("milestone")) return std::nullopt;
  return manifest["milestone"] == true;
}

std::string file_problem(const std::string& folder, const json& files, const char* name) {
  const std::string path = folder + "/" + name;
  if (!files.contains(name) || !files[name].is_object())
    return std::string(kManifest) + " does not list " + name;
  const json& file = files[name];
  if (!file.contains("bytes") || !file["bytes"].is_number_integer() || !file.contains("sha256") ||
      !file["sha256"].is_string()) {
    return std::string(kManifest) + " has no size or hash of " + name;
  }
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return std::string(name) + " is missing";
  if (static_cast<int64_t>(size) != file["bytes"].get<int64_t>()) {
    return strprintf("%s has %ld bytes instead of %ld", name, static_cast<long>(size),
                     static_cast<long>(file["bytes"].get<int64_t>()));
  }
  if (sha256_file(path) != file["sha256"].get<std::string>())
    return std::string(name) + " has another SHA-256";
  return "";
}

}  // namespace

json to_json(const TrainingState& s) {
  json j;
  j["step"] = s.step;
  j["tokens"] = s.tokens;
  j["cursor"]["shard"] = s.cursor.shard;
  j["cursor"]["batch"] = s.cursor.batch;
  j["cursor"]["epoch"] = s.cursor.epoch;
  j["seed"] = s.seed;
  j["schedule_share"] = s.schedule_share;
  j["config"] = s.config_yaml;
  j["config_hashes"] = s.config_hashes;
  j["versions"] = s.versions;
  j["extra"] = s.extra;
  return j;
}

TrainingState training_state(const json& j) {
  try {
    const json& cursor = j.at("cursor");
    return {.step = j.at("step"),
            .tokens = j.at("tokens"),
            .cursor = {.shard = cursor.at("shard"),
                       .batch = cursor.at("batch"),
                       .epoch = cursor.at("epoch")},
            .seed = j.at("seed"),
            .schedule_share = j.at("schedule_share"),
            .config_yaml = j.at("config"),
            .config_hashes = j.at("config_hashes"),
            .versions = j.at("versions"),
            .extra = j.at("extra")};
  } catch (const json::exception& error) {
    throw UserError(
        std::string("the checkpoint's state is not in this version's format: ") + error.what(),
        "remove the checkpoint's folder to use the previous one, or start over with --fresh");
  }
}

Checkpoints::Checkpoints(std::string run_directory, int64_t keep_last, Warn warn)
    : folder_(std::move(run_directory) + "/checkpoints"),
      keep_last_(keep_last),
      warn_(std::move(warn)) {
  CHECK(keep_last_ >= 1, "keep_last is %ld", static_cast<long>(keep_last_));
}

std::string Checkpoints::save(const TrainingState& state, const std::vector<TensorRef>& model,
                              const std::vector<TensorRef>& optimizer, Keep keep) {
  const std::string name = folder_ + "/" + step_name(state.step);
  try {
    write(name, state, model, optimizer, keep);
  } catch (const UserError& error) {  // its hint would name the removed temporary folder
    throw UserError(error.what(), "check the disk (df -h " + folder_ +
                                      ") and run the same command again: it resumes from the "
                                      "previous checkpoint");
  }
  prune();
  return name;
}

void Checkpoints::write(const std::string& name, const TrainingState& state,
                        const std::vector<TensorRef>& model,
                        const std::vector<TensorRef>& optimizer, Keep keep) const {
  make_folders(folder_);
  remove_leftovers(folder_);
  TemporaryFolder temporary(folder_ + "/" + kTemporary + step_name(state.step));

  json files = json::object();
  const auto add = [&](const char* file, const WrittenFile& written) {
    files[file] = {{"bytes", written.bytes}, {"sha256", written.sha256}};
  };
  add(kModel, write_safetensors(temporary / kModel, model));
  add(kOptimizer, write_safetensors(temporary / kOptimizer, optimizer));
  const std::string text =
      to_json(state).dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  write_file_atomic(temporary / kState, text);
  add(kState, {.bytes = static_cast<int64_t>(text.size()), .sha256 = sha256_hex(text)});
  const json manifest = {{"format", kFormat},
                         {"step", state.step},
                         {"milestone", keep == Keep::kMilestone},
                         {"files", files}};
  write_file_atomic(temporary / kManifest, manifest.dump(2) + "\n");
  temporary.publish(name);
}

std::vector<std::string> Checkpoints::all() const {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0) found.emplace_back(step, entry.path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> folders;
  folders.reserve(found.size());
  for (auto& [step, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

std::optional<std::string> Checkpoints::newest() const {
  std::vector<std::string> folders = all();
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    const std::string problem = checkpoint_problem(*folder);
    if (problem.empty()) return *folder;
    if (warn_) warn_("ignoring the checkpoint " + *folder + ": " + problem);
  }
  return std::nullopt;
}

void Checkpoints::mark_best(int64_t step) {
  const std::string target = step_name(step), temporary = folder_ + "/" + kTemporary + kBest;
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, folder_ + "/" + kBest, error);
  if (error && warn_) {
    warn_("cannot mark " + target + " as the best checkpoint: " + error.message());
  }
  prune();
}

std::optional<int64_t> Checkpoints::best_step() const {
  std::error_code error;
  const fs::path target = fs::read_symlink(folder_ + "/" + kBest, error);
  if (error || !fs::exists(folder_ + "/" + target.string(), error)) return std::nullopt;
  const int64_t step = step_of(target.string());
  if (step < 0) return std::nullopt;
  return step;
}

// Folders without a manifest are kept for inspection: they do not count, and their step may be
// saved again.
void Checkpoints::prune() {
  std::vector<std::string> folders = all();
  if (const std::optional<int64_t> best = best_step()) {
    std::erase(folders, folder_ + "/" + step_name(*best));
  }
  int64_t rolling = 0;
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    if (is_milestone(*folder).value_or(true) || ++rolling <= keep_last_) continue;
    try {
      remove_checkpoint(*folder);
    } catch (const UserError& error) {
      if (warn_) warn_(std::string("cannot remove an old checkpoint: ") + error.what());
    }
  }
}

std::string checkpoint_problem(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  std::error_code unreadable;
  if (!fs::exists(path, unreadable))
    return std::string("it has no ") + kManifest + ", so it is incomplete";
  try {
    const json manifest = json::parse(read_file(path));
    if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_object()) {
      return std::string(kManifest) + " lists no files";
    }
    if (manifest.value("format", 0) != kFormat) {
      return std::string(kManifest) + " has format " + std::to_string(manifest.value("format", 0));
    }
    for (const char* name : {kState, kModel, kOptimizer}) {
      const std::string problem = file_problem(folder, manifest["files"], name);
      if (!problem.empty()) return problem;
    }
    return "";
  } catch (const json::exception&) {
    return std::string(kManifest) + " is not the manifest of a checkpoint";
  } catch (const UserError& error) {
    return error.what();
  }
}

TrainingState load_state(const std::string& folder) {
  return training_state(parse_file(folder + "/" + kState));
}

void load_model(const std::string& folder, const std::vector<TensorRef>& model) {
  read_safetensors(folder + "/" + kModel, model);
}

void load_optimizer(const std::string& folder, const std::vector<TensorRef>& optimizer) {
  read_safetensors(folder + "/" + kOptimizer, optimizer);
}

std::string require_checkpoint(const std::string& run_or_checkpoint,
                               const Checkpoints::Warn& warn) {
  const fs::path path = fs::path(run_or_checkpoint).lexically_normal();
  fs::path named = path.has_filename() ? path : path.parent_path();  // "x/" is x
  if (named.filename() == kBest && fs::is_symlink(named)) named = fs::canonical(named);
  if (step_of(named.filename().string()) >= 0 && fs::is_directory(named)) {
    const std::string problem = checkpoint_problem(named.string());
    if (problem.empty()) return named.string();
    throw UserError(named.string() + " is damaged: " + problem,
                    "give the run to use its newest valid checkpoint");
  }
  const std::string run = require_run(run_or_checkpoint).string();
  const std::optional<std::string> newest = Checkpoints(run, 1, warn).newest();
  if (!newest) throw UserError(run + " has no valid checkpoint", "train it further: `assay train`");
  return *newest;
}

}  // namespace assay
