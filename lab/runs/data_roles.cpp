#include "lab/runs/data_roles.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// As the pattern found its files (paths_matching() of base/file.h).
bool is_named(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return path == pattern ||
           fnmatch(escaped_pattern(pattern).c_str(), path.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0;
  });
}

// The embedded corpus names its files by their split.
bool is_of_synth(const std::string& path, const char* split) {
  return fs::path(path).filename().string().starts_with(std::string("synth_") + split + "_");
}

// Without "/" at the end; "." for the working folder.
fs::path normal_folder(const fs::path& folder) {
  const fs::path normal = (folder / ".").lexically_normal();  // ends with "/", or is "."
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

bool is_tokenizer_file(const RunRecord& run, const std::string& path) {
  const fs::path tokenizer = run.config.data.tokenizer, file = path;
  if (tokenizer.empty()) return file.extension() == ".json";
  if (file.lexically_normal() == tokenizer.lexically_normal()) return true;
  const std::set<fs::path> names = {"tokenizer.json", "vocab.json", "merges.txt"};
  const bool is_file = names.contains(tokenizer.filename());  // else it may be a folder
  return names.contains(file.filename()) &&
         normal_folder(file.parent_path()) ==
             normal_folder(is_file ? tokenizer.parent_path() : tokenizer);
}

std::optional<DataRoles> data_roles(const RunRecord& run) {
  const DataConfig& data = run.config.data;
  DataRoles roles;
  for (const auto& [path, sha256] : run.data_sha256) {
    if (is_tokenizer_file(run, path)) continue;
    const bool train = data.synth ? is_of_synth(path, "train") : is_named(path, data.train);
    const bool val = data.synth ? is_of_synth(path, "val") : is_named(path, data.val);
    if (!train && !val) return std::nullopt;
    const DataFile file{.name = fs::path(path).filename().string(), .sha256 = sha256};
    if (train) roles.train.push_back(file);
    if (val) roles.val.push_back(file);
  }
  if (roles.train.empty() || roles.val.empty()) return std::nullopt;
  return roles;
}

std::vector<DataFile> shards_of(const RunRecord& run) {
  std::vector<DataFile> files;
  for (const auto& [path, sha256] : run.data_sha256) {
    if (is_tokenizer_file(run, path)) continue;
    files.push_back({.name = fs::path(path).filename().string(), .sha256 = sha256});
  }
  return files;
}

std::vector<DataFile> without(const std::vector<DataFile>& files, std::vector<DataFile> others) {
  std::vector<DataFile> left;
  for (const DataFile& file : files) {
    const auto same = std::find_if(others.begin(), others.end(), [&](const DataFile& other) {
      return other.sha256 == file.sha256;
    });
    if (same == others.end()) {
      left.push_back(file);
    } else {
      others.erase(same);
    }
  }
  return left;
}

std::optional<size_t> first_difference(const std::vector<DataFile>& a,
                                       const std::vector<DataFile>& b) {
  const auto same = [](const DataFile& x, const DataFile& y) { return x.sha256 == y.sha256; };
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same);
  if (in_a == a.end() && in_b == b.end()) return std::nullopt;
  return size_t(in_a - a.begin());
}

std::string shard_text(const std::vector<DataFile>& files, size_t at) {
  return at < files.size() ? files[at].text() : "no further shard";
}

std::string data_identity(const RunRecord& run) {
  std::multiset<std::string> hashes;
  for (const DataFile& file : shards_of(run)) hashes.insert(file.sha256);
  std::string identity;
  for (const std::string& hash : hashes) identity += hash + "\n";
  return identity;
}

std::string different_shards(const RunRecord& a, const RunRecord& b) {
  const std::vector<DataFile> all_a = shards_of(a), all_b = shards_of(b);
  if (all_a.empty() || all_b.empty()) return "";
  const auto in_order = [&](const char* what, const std::vector<DataFile>& of_a,
                            const std::vector<DataFile>& of_b) {
    const std::optional<size_t> at = first_difference(of_a, of_b);
    return at ? std::string(what) + " of " + b.name + " is " + shard_text(of_b, *at) + ", of " +
                    a.name + " " + shard_text(of_a, *at)
              : "";
  };
  const auto in_any_order = [&](const char* what, const std::vector<DataFile>& of_a,
                                const std::vector<DataFile>& of_b) {
    return in_order(what, without(of_a, of_b), without(of_b, of_a));
  };
  const std::optional<DataRoles> roles_a = data_roles(a), roles_b = data_roles(b);
  if (!roles_a || !roles_b) return in_any_order("data", all_a, all_b);
  const std::string training = in_any_order("training data", roles_a->train, roles_b->train);
  // A loss is over the first tokens of the validation files, so their order matters.
  return training.empty() ? in_order("validation data", roles_a->val, roles_b->val) : training;
}

std::vector<DataFile> trained_validation(const DataRoles& roles) {
  std::vector<DataFile> trained;
  std::copy_if(
      roles.val.begin(), roles.val.end(), std::back_inserter(trained), [&](const DataFile& val) {
        return std::any_of(roles.train.begin(), roles.train.end(),
                           [&](const DataFile& train) { return train.sha256 == val.sha256; });
      });
  return trained;
}

std::string trained_validation_files(const RunRecord& run) {
  const std::optional<DataRoles> roles = data_roles(run);
  if (!roles) return "";
  std::string names;
  for (const DataFile& file : trained_validation(*roles))
    names += (names.empty() ? "" : ", ") + file.name;
  return names;
}

std::string trained_validation_text(const RunRecord& run) {
  const std::string files = trained_validation_files(run);
  if (files.empty()) return "";
  return run.name + " trained on its own validation data (" + files +
         "): its losses are not those of unseen text";
}

}  // namespace assay
