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

// Files may have moved: by their names without folders, which several may have.
using NamedContents = std::multiset<std::pair<std::string, std::string>>;  // name, SHA-256
NamedContents content_by_name(const FileHashes& files);

}  // namespace assay
