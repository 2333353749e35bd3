#include "lab/matrix/cell_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "data/json_text.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using NamedContent = std::pair<std::string, std::string>;  // name, SHA-256

std::multiset<NamedContent> content_by_name(const FileHashes& files) {
  std::multiset<NamedContent> named;
  for (const auto& [path, hash] : files) named.emplace(fs::path(path).filename().string(), hash);
  return named;
}

std::multiset<NamedContent> missing_in(const std::multiset<NamedContent>& files,
                                       const std::multiset<NamedContent>& others) {
  std::multiset<NamedContent> left;
  std::set_difference(files.begin(), files.end(), others.begin(), others.end(),
                      std::inserter(left, left.end()));
  return left;
}

// A tokenizer may be given to one side only: it changes no loss per token.
const NamedContent* first_shard(const std::multiset<NamedContent>& files) {
  for (const NamedContent& file : files) {
    if (fs::path(file.first).extension() != ".json" && file.first != "merges.txt") return &file;
  }
  return nullptr;
}

std::string change_text(const std::string& name, const std::string& before,
                        const std::string& now) {
  const auto shown = [](const std::string& hash) {
    return hash.empty() ? "none" : hash.substr(0, 12);
  };
  return "data " + name + ": " + shown(before) + " -> " + shown(now);
}

}  // namespace

FileHashes recorded_data(const std::string& run) {
  FileHashes files;
  const auto meta = json_in_file<nlohmann::json>((fs::path(run) / "meta.json").string());
  if (!meta.is_object() || !meta.contains("data_sha256") || !meta["data_sha256"].is_object())
    return files;
  for (const auto& [path, hash] : meta["data_sha256"].items()) {
    if (hash.is_string()) files[path] = hash.get<std::string>();
  }
  return files;
}

std::string data_change(const FileHashes& before, const FileHashes& now) {
  if (before.empty() || now.empty()) return "";
  const std::multiset<NamedContent> old_files = content_by_name(before),
                                    new_files = content_by_name(now);
  const std::multiset<NamedContent> gone = missing_in(old_files, new_files),
                                    come = missing_in(new_files, old_files);
  for (const auto& [name, hash] : gone) {
    const auto same = std::find_if(come.begin(), come.end(),
                                   [&](const NamedContent& file) { return file.first == name; });
    if (same != come.end()) return change_text(name, hash, same->second);
  }
  if (const NamedContent* const file = first_shard(gone))
    return change_text(file->first, file->second, "");
  if (const NamedContent* const file = first_shard(come))
    return change_text(file->first, "", file->second);
  return "";
}

}  // namespace assay
