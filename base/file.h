// Whole files, and files that are either complete or absent. Every failure is a UserError with the
// path, what the system said and what to do.
//
//   AtomicFile file(path);              // writes path + ".part", locked against a second writer
//   file.write(data, bytes);
//   file.commit();                      // fsync, rename, fsync of the folder: now path is the new content
//
// Without commit() the part file is removed and whatever stood under `path` before is untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

// The bytes of a regular file.
std::string read_file(const std::string& path);

// All of `bytes` under `path`, or an error and what was there before.
void write_file_atomic(const std::string& path, std::string_view bytes);

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  // Replaces bytes already written (a header whose counts are known at the end).
  void write_at(int64_t offset, const void* data, size_t bytes);
  // Everything written so far can be read under part_path().
  void flush();
  // Everything written so far is on the disk: after it, commit() only renames. Several files that
  // belong together are all synced before the first is committed.
  void sync();
  void commit();

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
};

// Makes the folder and its parents; an existing one is fine.
void make_folders(const std::string& path);

}  // namespace assay
