// SHA-256 of files from their bytes, several files at a time. A hash that was computed before is
// taken from the cache if the file's stamp is the same.
//
//   const HashedFiles files = hash_files(paths, UseCache::kYes);
//   files.at(path).sha256
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/hash_cache.h"

namespace assay {

struct HashedFile {
  FileStamp stamp;  // of the bytes that were hashed
  std::string sha256;
  int64_t computed_at = 0;  // seconds since 1970
  bool cached = false;      // computed by an earlier process

  // "computed", or "cached, computed 2026-11-23T13:00:00Z"
  std::string how() const;
};
using HashedFiles = std::map<std::string, HashedFile>;  // by path

enum class UseCache { kYes, kNo };

// UserError for a file that is missing, unreadable, or that changes while it is read. Shows its
// progress when it takes longer than half a second.
HashedFiles hash_files(const std::vector<std::string>& paths, UseCache use);

// "data: 3 files, 412.0 MB: SHA-256 computed (1450 MB/s)". seconds: what hash_files() took.
std::string hashed_text(const HashedFiles& files, double seconds);

}  // namespace assay
