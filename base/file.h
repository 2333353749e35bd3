// Whole files, and files that are either complete or absent. Every failure is a UserError with the
// path, the system's error and a hint.
//
//   AtomicFile file(path);      // writes path + ".part", locked against a second writer
//   file.write(data, bytes);
//   file.commit();              // fsync, rename to path, fsync of the folder
//
// Without commit() the part file is removed and the previous content of `path` is untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

// The whole content of a file, at most 1 GiB.
std::string read_file(const std::string& path);
// That of a file in a folder that somebody else may have written, such as a run. UserError for a
// pipe or a device, for which read_file() would wait.
std::string read_regular_file(const std::string& path);
// Opens such a file for reading. -1 with errno if that fails; UserError for a pipe or a device.
int open_regular(const std::string& path);

// UserError for a link, a pipe or a device; a path where nothing is may be made. For a file that is
// written in place: a folder from elsewhere may hold a link to any file of the user.
void require_no_link(const std::string& path);

// Replaces the content of `path` with `bytes`; on an error the previous content stays.
void write_file_atomic(const std::string& path, std::string_view bytes);

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  // Replaces bytes already written, such as a header whose counts are known only at the end.
  void write_at(int64_t offset, const void* data, size_t bytes);
  // Makes everything written so far readable at part_path().
  void flush();
  // Puts everything written so far on the disk, so that commit() only has to rename. Files that
  // belong together are all synced before the first is committed.
  void sync();
  // Syncs, and closes the part file, which commit() then only renames: of many files that belong
  // together. Another process may then write it, so that one of them must stay open.
  void close_part();
  void commit();

  // Written so far, including what is still buffered.
  int64_t bytes() const { return written_ + static_cast<int64_t>(buffer_.size()); }
  const std::string& path() const { return path_; }
  const std::string& part_path() const { return part_; }

 private:
  void put(int64_t offset, const char* data, size_t bytes);
  void discard() noexcept;

  std::string path_;
  std::string part_;
  std::vector<char> buffer_;
  int64_t written_ = 0;  // bytes already handed to the system
  int file_ = -1;
  bool closed_ = false;  // by close_part()
};

// Opens this file, which it makes, for writing, with a lock that other processes respect. -1 with
// errno if that fails: EWOULDBLOCK if another process holds it. The lock belongs to the inode, so a
// file that its holder renamed or removed between our open and our lock is opened again.
enum class Lock { kTry, kWait };
int open_locked(const std::string& path, Lock lock);

// The names in a folder, sorted; none if there is no such folder. ReadFailed if it cannot be read:
// one that only seems empty would be taken for new.
std::vector<std::string> names_in(const std::string& folder);

// The paths that a pattern of the shell (*, ?, [...]) matches, in order. Its longest beginning that
// exists as it is written is no pattern: "exp[1]/*.bin" is of a folder exp[1] where that is there.
// ReadFailed if a folder where some might be cannot be searched.
std::vector<std::string> paths_matching(const std::string& pattern);
// That pattern as glob() and fnmatch() read it: with a \ before each special character of the
// beginning that is none.
std::string escaped_pattern(const std::string& pattern);

// Creates the folder and its parents; an existing one is fine.
void make_folders(const std::string& path);

}  // namespace assay
