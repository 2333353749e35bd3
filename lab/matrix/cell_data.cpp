#include "lab/matrix/cell_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace assay {
namespace {

namespace fs = std::filesystem;
using NamedContent = NamedContents::value_type;

NamedContents missing_in(const NamedContents& files, const NamedContents& others) {
  NamedContents left;
  std::set_difference(files.begin(), files.end(), others.begin(), others.end(),
                      std::inserter(left, left.end()));
  return left;
}

// A tokenizer may be given to one side only: it changes no loss per token.
const NamedContent* first_shard(const NamedContents& files) {
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

std::string data_change(const FileHashes& before, const FileHashes& now) {
  if (before.empty() || now.empty()) return "";
  const NamedContents old_files = content_by_name(before), new_files = content_by_name(now);
  const NamedContents gone = missing_in(old_files, new_files),
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
