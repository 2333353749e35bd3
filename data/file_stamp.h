// Says without reading a file whether it may have changed since it was looked at.
//
// The kernel sets ctime whenever the content or the inode of a file changes, and a program cannot
// set it: a tool that restores mtime (touch, cp -p, rsync -t, tar) leaves a new ctime. So equal
// stamps mean equal bytes, as far as the clock and the file system tell the truth.
#pragma once

#include <cstdint>
#include <string>

namespace assay {

struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  int64_t mtime_ns = 0, ctime_ns = 0;  // since 1970
  bool operator==(const FileStamp&) const = default;
  bool same_file(const FileStamp& o) const { return device == o.device && inode == o.inode; }
};

// UserError when the file cannot be looked at. path: for the error.
FileStamp stamp_of(int file, const std::string& path);
FileStamp stamp_of(const std::string& path);

}  // namespace assay
