// Where the shards of a run are now: data lies outside of a run and is told by name and hash.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace assay {

struct FoundData {
  std::string path;
  std::string sha256;  // of the file as it is
};

// The file of that name in the folders (and below), or where meta.json of the run says that it was.
// One with the hash if there is one, else the first; nothing when there is none.
std::optional<FoundData> find_data(const std::string& name, const std::string& sha256,
                                   const std::vector<std::string>& folders, const std::string& run);

}  // namespace assay
