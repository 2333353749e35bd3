#include "data/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "data/shard.h"
#include "data/tokenizer_files.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "assay-corpus-1";
constexpr const char* kAnyFormat = "assay-corpus-";  // how all versions of it begin

// Of JSON; what is not JSON may be ours, cut short.
bool is_of_another_program(const ordered_json& file) {
  if (file.is_discarded()) return false;
  const bool has_format = file.is_object() && file.contains("format") && file["format"].is_string();
  return !has_format || !file["format"].get<std::string>().starts_with(kAnyFormat);
}

// Files of a corpus are in its folder: what a manifest lists is read, hashed and replaced.
void require_own_files(const Manifest& manifest, const std::string& path) {
  std::vector<std::string> names = {manifest.tokenizer_file};
  for (const ShardEntry& shard : manifest.shards) names.push_back(shard.file);
  for (const std::string& name : names) {
    const bool is_name = !name.empty() && name != "." && name != ".." &&
                         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
    if (is_name) continue;
    throw UserError(path + " is damaged: '" + name + "' is no file of its folder",
                    "write the corpus again with: assay data prepare");
  }
}

// A pipe or a device may never end. What is missing says so when it is opened.
void require_no_pipe(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_other(path, ignored)) return;
  throw UserError("cannot read " + path + ": it is a pipe or a device, not a file",
                  "it is nothing that assay wrote: remove it");
}

}  // namespace

bool has_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) &&
         !is_of_another_program(json_of<ordered_json>(read_regular_file(path)));
}

int64_t Manifest::tokens(const std::string& split) const {
  int64_t sum = 0;
  for (const ShardEntry& shard : shards) sum += shard.split == split ? shard.tokens : 0;
  return sum;
}

int64_t Manifest::documents(const std::string& split) const {
  int64_t sum = 0;
  for (const ShardEntry& shard : shards) sum += shard.split == split ? shard.documents : 0;
  return sum;
}

Manifest read_manifest(const std::string& folder) {
  return read_manifest_file(folder + "/" + kManifestName);
}

Manifest read_manifest_file(const std::string& path) {
  const std::string text = read_regular_file(path);
  try {
    const ordered_json file = json_or_throw<ordered_json>(text);
    if (is_of_another_program(file))
      throw UserError(path + " is not the manifest of a corpus, but of another program",
                      "give the folder of a corpus that was written by: assay data prepare");
    if (file.at("format") != kFormat)
      throw UserError(strprintf("%s has the format %s, expected %s", path.c_str(),
                                file.at("format").dump().c_str(), kFormat),
                      "write the corpus again with: assay data prepare");
    Manifest manifest{.tokenizer_file = file.at("tokenizer").at("file"),
                      .tokenizer_sha256 = file.at("tokenizer").at("sha256"),
                      .pre_split = file.at("tokenizer").value("pre_split", ""),
                      .vocab_size = file.at("vocab_size"),
                      .eot_id = file.at("eot_id"),
                      .text_bytes = file.at("text_bytes"),
                      .validation = file.value("validation", ""),
                      .sources = {},
                      .shards = {}};
    if (file.contains("shuffle_seed")) manifest.shuffle_seed = file["shuffle_seed"];
    for (const ordered_json& source : file.value("sources", ordered_json::array()))
      manifest.sources.push_back({.file = source.at("file"),
                                  .bytes = source.at("bytes"),
                                  .documents = source.at("documents"),
                                  .bad_lines = source.at("bad_lines"),
                                  .not_utf8 = source.value("not_utf8", int64_t{0}),
                                  .sha256 = source.at("sha256")});
    for (const ordered_json& shard : file.at("shards"))
      manifest.shards.push_back({.file = shard.at("file"),
                                 .split = shard.at("split"),
                                 .tokens = shard.at("tokens"),
                                 .documents = shard.at("documents"),
                                 .sha256 = shard.at("sha256")});
    require_own_files(manifest, path);
    return manifest;
  } catch (const ordered_json::exception& e) {
    throw UserError(strprintf("%s is damaged: %s", path.c_str(), e.what()),
                    "write the corpus again with: assay data prepare");
  }
}

std::string manifest_text(const Manifest& manifest) {
  ordered_json shards = ordered_json::array();
  for (const ShardEntry& shard : manifest.shards)
    shards.push_back({{"file", shard.file},
                      {"split", shard.split},
                      {"tokens", shard.tokens},
                      {"documents", shard.documents},
                      {"sha256", shard.sha256}});
  ordered_json sources = ordered_json::array();
  for (const SourceEntry& source : manifest.sources)
    sources.push_back({{"file", source.file},
                       {"bytes", source.bytes},
                       {"documents", source.documents},
                       {"bad_lines", source.bad_lines},
                       {"not_utf8", source.not_utf8},
                       {"sha256", source.sha256}});
  ordered_json file = {
      {"format", kFormat},
      {"tokenizer", {{"file", manifest.tokenizer_file}, {"sha256", manifest.tokenizer_sha256}}},
      {"vocab_size", manifest.vocab_size},
      {"eot_id", manifest.eot_id},
      {"text_bytes", manifest.text_bytes},
      {"shards", std::move(shards)}};
  if (!manifest.pre_split.empty()) file["tokenizer"]["pre_split"] = manifest.pre_split;
  if (!manifest.validation.empty()) file["validation"] = manifest.validation;
  if (manifest.shuffle_seed) file["shuffle_seed"] = *manifest.shuffle_seed;
  if (!manifest.sources.empty()) file["sources"] = std::move(sources);
  return json_text(file, 2) + "\n";
}

void require_manifest_hashes(const HashedFiles& files) {
  std::map<std::string, std::map<std::string, std::string>> manifests;  // folder, file, SHA-256
  for (const auto& [path, hashed] : files) {
    const std::filesystem::path at(path);
    const std::string folder = at.has_parent_path() ? at.parent_path().string() : ".";
    if (!manifests.contains(folder)) {
      auto& entries = manifests[folder];
      if (!has_manifest(folder)) continue;
      for (const ShardEntry& entry : read_manifest(folder).shards)
        entries[entry.file] = entry.sha256;
    }
    const auto entry = manifests[folder].find(at.filename().string());
    if (entry == manifests[folder].end() || entry->second == hashed.sha256) continue;
    throw UserError(
        strprintf("%s has SHA-256 %.16s, %s/%s says %.16s", path.c_str(), hashed.sha256.c_str(),
                  folder.c_str(), kManifestName, entry->second.c_str()),
        "it is not the shard that was prepared: restore it or prepare the corpus again (assay data "
        "verify " +
            folder + " lists all); if the change is intended, remove " + kManifestName);
  }
}

std::vector<std::string> verify_corpus(const Manifest& manifest, const std::string& folder) {
  std::vector<std::string> wrong;
  const auto differs = [&](const std::string& file, const char* what, const std::string& got,
                           const std::string& want) {
    if (got != want)
      wrong.push_back(file + ": " + what + " " + got + ", the manifest says " + want);
  };
  const auto check = [&](const auto& compare) {
    try {
      compare();
    } catch (const UserError& e) {
      wrong.push_back(e.what());
    }
  };
  std::vector<std::string> paths, readable;
  for (const ShardEntry& entry : manifest.shards) paths.push_back(folder + "/" + entry.file);
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(path, ignored);
    if (is_file && access(path.c_str(), R_OK) == 0) readable.push_back(path);
  }
  const HashedFiles hashed = hash_files(readable, UseCache::kNo);
  for (size_t i = 0; i < paths.size(); ++i)
    check([&] {
      const ShardEntry& entry = manifest.shards[i];
      require_no_pipe(paths[i]);
      const Shard shard(paths[i]);
      differs(entry.file, "tokens", std::to_string(shard.tokens()), std::to_string(entry.tokens));
      differs(entry.file, "SHA-256", hashed.at(paths[i]).sha256, entry.sha256);
    });
  check([&] {
    const std::string file = folder + "/" + manifest.tokenizer_file;
    require_no_pipe(file);
    if (sha256_file(file) == manifest.tokenizer_sha256) return;
    // Another program's file of the same tokenizer, which prepare() left as it was.
    differs(manifest.tokenizer_file, "SHA-256", tokenizer_hash(read_tokenizer(file)),
            manifest.tokenizer_sha256);
  });
  return wrong;
}

std::vector<std::string> unlisted_shards(const Manifest& manifest, const std::string& folder) {
  std::vector<std::string> unlisted;
  for (const std::string& file : names_in(folder)) {
    const bool listed = std::any_of(manifest.shards.begin(), manifest.shards.end(),
                                    [&](const ShardEntry& entry) { return entry.file == file; });
    if (file.ends_with(".bin") && !listed) unlisted.push_back(file);
  }
  return unlisted;
}

}  // namespace assay
