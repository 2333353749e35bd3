#include "lab/matrix/cell_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "data/json_text.h"

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

bool is_of_tokenizer(const NamedContent& file) {
  return fs::path(file.first).extension() == ".json" || file.first == "merges.txt";
}

// A tokenizer may be given to one side only: it changes no loss per token.
const NamedContent* first_shard(const NamedContents& files) {
  const auto shard = std::find_if_not(files.begin(), files.end(), is_of_tokenizer);
  return shard == files.end() ? nullptr : &*shard;
}

TokenizerHashes tokenizer_among(const NamedContents& files, const std::string& content) {
  TokenizerHashes hashes{.content = content};
  for (const NamedContent& file : files)
    if (is_of_tokenizer(file)) hashes.files += file.second;
  return hashes;
}

FieldDifference change_of(const std::string& name, const std::string& before,
                          const std::string& now) {
  const auto shown = [](const std::string& hash) {
    return hash.empty() ? "none" : hash.substr(0, 12);
  };
  return {.field = "data " + name, .before = shown(before), .now = shown(now)};
}

}  // namespace

DataHashes data_hashes_of(const std::string& run) {
  const auto meta = json_in_file<nlohmann::ordered_json>(fs::path(run) / "meta.json");
  return {.files = recorded_data(meta), .tokenizer_sha256 = recorded_tokenizer(meta)};
}

std::optional<FieldDifference> data_change(const DataHashes& before, const DataHashes& now) {
  if (before.files.empty() || now.files.empty()) return std::nullopt;
  NamedContents old_files = content_by_name(before.files), new_files = content_by_name(now.files);
  if (same_tokenizer(tokenizer_among(old_files, before.tokenizer_sha256),
                     tokenizer_among(new_files, now.tokenizer_sha256))) {
    std::erase_if(old_files, is_of_tokenizer);
    std::erase_if(new_files, is_of_tokenizer);
  }
  const NamedContents gone = missing_in(old_files, new_files),
                      come = missing_in(new_files, old_files);
  for (const auto& [name, hash] : gone) {
    const auto same = std::find_if(come.begin(), come.end(),
                                   [&](const NamedContent& file) { return file.first == name; });
    if (same != come.end()) return change_of(name, hash, same->second);
  }
  if (const NamedContent* const file = first_shard(gone))
    return change_of(file->first, file->second, "");
  if (const NamedContent* const file = first_shard(come))
    return change_of(file->first, "", file->second);
  return std::nullopt;
}

}  // namespace assay
