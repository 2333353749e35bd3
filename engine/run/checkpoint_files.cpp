#include "engine/run/checkpoint_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "data/hash_files.h"
#include "data/json_text.h"
#include "engine/run/checkpoint_slices.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kLookAtDisk = "check the disk and the permissions";
constexpr const char* kHint = "use another checkpoint of the run, or train it further";

const char* kind_name(TensorKind kind) {
  return kind == TensorKind::kModel ? "model" : "optimizer";
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

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(std::string(kCheckpointManifest) + " " + what, kHint);
}

WrittenFile file_in(const json& files, const std::string& name) {
  if (!files.contains(name) || !files[name].is_object()) refuse("does not list " + name);
  const json& file = files[name];
  if (!file.contains("bytes") || !file["bytes"].is_number_integer() || !file.contains("sha256") ||
      !file["sha256"].is_string()) {
    refuse("has no size or hash of " + name);
  }
  return {.bytes = file["bytes"], .sha256 = file["sha256"]};
}

std::vector<std::string> tensor_names(const json& manifest, TensorKind kind) {
  const json tensors = manifest.value("tensors", json::object());
  const char* const name = kind_name(kind);
  if (!tensors.contains(name) || !tensors[name].is_array())
    refuse(std::string("lists no tensors of the ") + name);
  return tensors[name].get<std::vector<std::string>>();
}

// Messages do not name the folder.
CheckpointManifest parse_manifest(const std::string& text) {
  try {
    const json j = json_or_throw(text);
    if (!j.is_object() || !j.contains("files") || !j["files"].is_object()) refuse("lists no files");
    const json& files = j["files"];
    CheckpointManifest manifest;
    const int64_t format = j.value("format", int64_t{0});
    if (format != 1 && format != 2) refuse("has format " + std::to_string(format));
    if (format == 2) {
      manifest.ranks = j.value("ranks", int64_t{0});
      const bool possible = manifest.ranks >= 2 && manifest.ranks <= int64_t(files.size());
      if (!possible) {
        refuse(strprintf("lists %zu files of %ld ranks", files.size(), long(manifest.ranks)));
      }
    }
    std::vector<std::string> names = {kCheckpointState};
    for (const TensorKind kind : {TensorKind::kModel, TensorKind::kOptimizer}) {
      for (const std::string& name : manifest.tensor_files(kind)) names.push_back(name);
    }
    for (const std::string& name : names) manifest.files[name] = file_in(files, name);
    if (format == 2) {
      manifest.model = tensor_names(j, TensorKind::kModel);
      manifest.optimizer = tensor_names(j, TensorKind::kOptimizer);
    }
    manifest.step = j.value("step", int64_t{0});
    manifest.milestone = j.value("milestone", false);
    manifest.by_time = j.value("by_time", false);
    return manifest;
  } catch (const json::exception&) {
    refuse("is not the manifest of a checkpoint");
  }
}

std::string size_problem(const std::string& path, const std::string& name,
                         const WrittenFile& file) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return name + " is missing";
  if (error) throw_unread(path, error.value(), kLookAtDisk);
  if (static_cast<int64_t>(size) != file.bytes) {
    return strprintf("%s has %ld bytes instead of %ld", name.c_str(), static_cast<long>(size),
                     static_cast<long>(file.bytes));
  }
  return "";
}

// Of gigabytes this takes seconds: several files are hashed at a time.
std::string hash_problem(const std::string& folder,
                         const std::map<std::string, WrittenFile>& files) {
  std::vector<std::string> paths;
  for (const auto& [name, file] : files) paths.push_back(folder + "/" + name);
  const HashedFiles hashed = hash_files(paths, UseCache::kNo);
  for (const auto& [name, file] : files) {
    if (hashed.at(folder + "/" + name).sha256 != file.sha256) return name + " has another SHA-256";
  }
  return "";
}

}  // namespace

std::string whole_file(TensorKind kind) {
  return std::string(kind_name(kind)) + ".safetensors";
}

std::string rank_file(TensorKind kind, int64_t rank) {
  return strprintf("%s.%05ld.safetensors", kind_name(kind), static_cast<long>(rank));
}

std::vector<std::string> CheckpointManifest::tensor_files(TensorKind kind) const {
  if (format() == 1) return {whole_file(kind)};
  std::vector<std::string> names;
  for (int64_t rank = 0; rank < ranks; ++rank) names.push_back(rank_file(kind, rank));
  return names;
}

std::string CheckpointManifest::tensor_files_text(const std::string& folder,
                                                  TensorKind kind) const {
  const std::string of_ranks = std::string(kind_name(kind)) + ".*.safetensors";
  return folder + "/" + (format() == 1 ? whole_file(kind) : of_ranks);
}

std::string CheckpointManifest::text() const {
  json j = {{"format", format()}, {"step", step}, {"milestone", milestone}};
  if (by_time) j["by_time"] = true;
  if (format() == 2) {
    j["ranks"] = ranks;
    j["tensors"] = {{"model", model}, {"optimizer", optimizer}};
  }
  j["files"] = json::object();
  for (const auto& [name, file] : files) {
    j["files"][name] = {{"bytes", file.bytes}, {"sha256", file.sha256}};
  }
  return j.dump(2) + "\n";
}

CheckpointManifest read_checkpoint_manifest(const std::string& folder) {
  const std::string text = read_regular_file(folder + "/" + kCheckpointManifest);
  try {
    return parse_manifest(text);
  } catch (const UserError& error) {
    throw UserError(folder + ": " + error.what(), error.hint());
  }
}

std::string checkpoint_problem(const std::string& folder) {
  const std::string path = folder + "/" + kCheckpointManifest;
  try {
    std::error_code error;
    if (!fs::exists(path, error)) {
      if (error) throw_unread(path, error.value(), kLookAtDisk);
      return std::string("it has no ") + kCheckpointManifest + ", so it is incomplete";
    }
    const CheckpointManifest manifest = parse_manifest(read_regular_file(path));
    for (const auto& [name, file] : manifest.files) {
      const std::string problem = size_problem(folder + "/" + name, name, file);
      if (!problem.empty()) return problem;
    }
    for (const TensorKind kind : {TensorKind::kModel, TensorKind::kOptimizer})
      CheckpointSlices(folder, kind);
    return hash_problem(folder, manifest.files);
  } catch (const ReadFailed& error) {
    throw ReadFailed(error.what(), std::string(kLookAtDisk) + "; without the folder " + folder +
                                       " the checkpoint before it is taken");
  } catch (const UserError& error) {
    const std::string what = error.what();
    return what.starts_with(folder + "/") ? what.substr(folder.size() + 1) : what;
  }
}

bool is_marked_damaged(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / kDamagedMark, ignored);
}

void mark_damaged(const std::string& folder, const std::string& problem) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || is_marked_damaged(folder)) return;
  if (fs::is_symlink(folder, ignored)) return;  // perhaps of another run
  try {
    write_file_atomic(folder + "/" + kDamagedMark, problem + "\n");
  } catch (const UserError&) {  // the launch that found it knows it all the same
  }
}

std::string step_name(int64_t step) {
  return strprintf("step-%08ld", static_cast<long>(step));
}

int64_t step_of(const std::string& name) {
  if (name.rfind("step-", 0) != 0 || name.size() < 13 || name.size() > 20) return -1;
  int64_t step = 0;
  for (size_t i = 5; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') return -1;
    step = step * 10 + (name[i] - '0');
  }
  return step;
}

TemporaryFolder::TemporaryFolder(std::string path) : path_(std::move(path)) {
  make_folders(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void TemporaryFolder::publish(const std::string& name) {
  sync_folder(path_);
  std::error_code error;
  if (fs::exists(name, error)) remove_checkpoint(name);
  if (error) throw_unread(name, error.value(), kLookAtDisk);
  rename_folder(path_, name);
  sync_folder(fs::path(name).parent_path().string());
  path_.clear();
}

void remove_leftovers(const std::string& checkpoints) {
  for (const std::string& name : names_in(checkpoints)) {
    std::error_code ignored;
    if (name.starts_with(kTemporary)) fs::remove_all(fs::path(checkpoints) / name, ignored);
  }
}

void remove_checkpoint(const std::string& folder) {
  const fs::path path = folder;
  const fs::path hidden = path.parent_path() / (kTemporary + ("old-" + path.filename().string()));
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  rename_folder(folder, hidden.string());
  fs::remove_all(hidden, ignored);
}

}  // namespace assay
