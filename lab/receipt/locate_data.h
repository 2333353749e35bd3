// Finds the shards of a run: data lies outside of a run and is identified by name and hash.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace assay {

struct FoundData {
  std::string path;
  std::string sha256;  // of the file as it is now
};

// Looks for a file of that name in and below the folders, and at its place in the run's meta.json.
// Returns one with the hash if there is one, else the first; nullopt if there is none.
std::optional<FoundData> find_data(const std::string& name, const std::string& sha256,
                                   const std::vector<std::string>& folders, const std::string& run);

}  // namespace assay
