// Hashes that were computed before, by the stamp of the file, in one file per user:
// $XDG_CACHE_HOME/assay/sha256, or ~/.cache/assay/sha256.
//
// One line per hash, with a check of its own: a line that is damaged or cut short is ignored. Lines
// are appended under a lock, so that any number of processes may share the file. Where it cannot be
// read or written there is no cache, and nothing else changes. Removing it costs time only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/file_stamp.h"

namespace assay {

struct CachedHash {
  FileStamp stamp;
  std::string sha256;
  int64_t computed_at = 0;  // seconds since 1970
};

// "" when the environment names no home.
std::string hash_cache_path();

class HashCache {
 public:
  explicit HashCache(std::string path = hash_cache_path());
  std::optional<CachedHash> find(const FileStamp& stamp) const;
  // Leaves out files that changed less than two seconds before they were hashed: a later change
  // within the granularity of the file system's clock would leave the same stamp.
  void add(const std::vector<CachedHash>& hashes);

 private:
  std::string path_;
  std::vector<CachedHash> known_;  // oldest first
};

}  // namespace assay
