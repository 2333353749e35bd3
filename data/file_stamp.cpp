#include "data/file_stamp.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/read_failed.h"

namespace assay {

namespace {

int64_t nanoseconds(const timespec& t) {
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

FileStamp stamp(const struct stat& s) {
  return {.device = s.st_dev,
          .inode = s.st_ino,
          .bytes = s.st_size,
          .mtime_ns = nanoseconds(s.st_mtim),
          .ctime_ns = nanoseconds(s.st_ctim)};
}

[[noreturn]] void throw_unseen(const std::string& path) {
  throw_unread(path, errno, "check the path and its permissions");
}

}  // namespace

FileStamp stamp_of(int file, const std::string& path) {
  struct stat s;
  if (fstat(file, &s) != 0) throw_unseen(path);
  return stamp(s);
}

FileStamp stamp_of(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) throw_unseen(path);
  return stamp(s);
}

}  // namespace assay
