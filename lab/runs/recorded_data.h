// The data of a run: the SHA-256 of its files, as a launch of it records them in meta.json.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>

namespace assay {

using FileHashes = std::map<std::string, std::string>;  // SHA-256 by path

// Of a launch; without what is no text. Empty if it recorded none.
FileHashes recorded_data(const nlohmann::ordered_json& launch);
// Of the last launch of a run; empty without a meta.json.
FileHashes recorded_data_of(const std::string& run);

// What its tokenizer says, whatever its files look like: tokenizer_hash() of
// data/tokenizer_files.h. "" if the launch did not record it, as those of older versions.
std::string recorded_tokenizer(const nlohmann::ordered_json& launch);

// A tokenizer.json that Assay wrote has one SHA-256 for both.
struct TokenizerHashes {
  std::string files = {};    // of its files, one after the other
  std::string content = {};  // tokenizer_hash()
  bool known() const { return !files.empty() || !content.empty(); }
};
bool same_tokenizer(const TokenizerHashes& a, const TokenizerHashes& b);

// Files may have moved: by their names without folders, which several may have.
using NamedContents = std::multiset<std::pair<std::string, std::string>>;  // name, SHA-256
NamedContents content_by_name(const FileHashes& files);

}  // namespace assay
