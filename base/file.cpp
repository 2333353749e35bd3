#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/read_failed.h"

namespace assay {

namespace {

constexpr size_t kBufferBytes = 1 << 18;
constexpr size_t kLargestFile = size_t{1} << 30;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void throw_read(const std::string& path, int error) {
  const char* hint = "check the path";
  if (error == EACCES || error == EPERM) hint = "check its permissions: ls -l";
  if (error == EISDIR) hint = "give a file, not a folder";
  throw_unread(path, error, hint);
}

[[noreturn]] void throw_write(const std::string& path, int error, int64_t bytes) {
  const std::string folder = folder_of(path);
  std::string hint = "check the folder " + folder + " and its permissions";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    hint = "free space (df -h " + folder + ") and run the same command again; nothing was replaced";
  if (error == ENOENT) hint = "create the folder " + folder + " first";
  if (too_many_files(error)) hint = kTooManyFiles;
  throw UserError(strprintf("cannot write %s: %s (after %ld bytes)", path.c_str(), strerror(error),
                            static_cast<long>(bytes)),
                  hint);
}

// Opens, locks and empties the part file.
int open_part(const std::string& path, const std::string& part) {
  const int file = open_locked(part, Lock::kTry);
  if (file < 0 && errno == EWOULDBLOCK)
    throw UserError(strprintf("%s is being written by another process", path.c_str()),
                    "wait for it, or choose another path");
  if (file < 0) throw_write(path, errno, 0);
  if (ftruncate(file, 0) == 0) return file;
  const int error = errno;
  close(file);
  throw_write(path, error, 0);
}

// Closes the file.
std::string read_whole(int file, const std::string& path) {
  if (file < 0) throw_read(path, errno);
  std::string bytes;
  struct stat info;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode))
    bytes.reserve(static_cast<size_t>(info.st_size) + 1);
  size_t have = 0;
  for (;;) {
    bytes.resize(std::max(have + kBufferBytes, bytes.capacity()));
    const ssize_t got = read(file, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      close(file);
      throw_read(path, error);
    }
    if (got == 0) break;
    have += static_cast<size_t>(got);
    if (have > kLargestFile) {
      close(file);
      throw UserError(strprintf("%s has more than %zu MiB, too much for such a file", path.c_str(),
                                kLargestFile >> 20),
                      "check that it is the right file");
    }
  }
  close(file);
  bytes.resize(have);
  return bytes;
}

// A folder is refused by who reads or writes it.
bool is_file_or_folder(const struct stat& info) {
  return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

}  // namespace

std::string read_file(const std::string& path) {
  return read_whole(open(path.c_str(), O_RDONLY | O_CLOEXEC), path);
}

std::string read_regular_file(const std::string& path) {
  return read_whole(open_regular(path), path);
}

int open_regular(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return -1;
  if (is_file_or_folder(info)) {  // a device may act when it is opened
    // Nor is a pipe waited for that took the place of the file since.
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0 || fstat(file, &info) != 0 || is_file_or_folder(info)) return file;
    close(file);
  }
  throw UserError("cannot read " + path + ": it is a pipe or a device, not a file",
                  "assay writes no such thing: remove it, or give a file");
}

void require_no_link(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || is_file_or_folder(info)) return;
  throw UserError(path + (S_ISLNK(info.st_mode) ? " is a link, and what it leads to is not written"
                                                : " is a pipe or a device, not a file"),
                  "assay writes no such thing: remove it, or put a file in its place");
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    throw UserError(strprintf("cannot write %s: it exists and is not a file", path_.c_str()),
                    "give the path of a file");
  file_ = open_part(path_, part_);
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (file_ < 0 && !closed_) return;
  unlink(part_.c_str());
  if (file_ >= 0) close(file_);
  file_ = -1;
  closed_ = false;
}

void AtomicFile::put(int64_t offset, const char* data, size_t bytes) {
  CHECK(file_ >= 0, "%s: written after commit()", path_.c_str());
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put = pwrite(file_, data + done, bytes - done,
                               static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_write(path_, errno, offset + static_cast<int64_t>(done));
    done += static_cast<size_t>(put);
  }
  // The disk begins at once, so that sync() has little left to wait for. A file system may refuse.
  if (bytes >= kBufferBytes)
    sync_file_range(file_, offset, static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  if (buffer_.size() + bytes > kBufferBytes) flush();
  if (bytes >= kBufferBytes) {
    put(written_, from, bytes);
    written_ += static_cast<int64_t>(bytes);
  } else {
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
}

void AtomicFile::write_at(int64_t offset, const void* data, size_t bytes) {
  CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes) <= this->bytes(),
        "%s: cannot replace bytes %ld to %ld, only %ld are written", path_.c_str(),
        static_cast<long>(offset), static_cast<long>(offset) + static_cast<long>(bytes),
        static_cast<long>(this->bytes()));
  flush();
  put(offset, static_cast<const char*>(data), bytes);
}

void AtomicFile::flush() {
  if (buffer_.empty()) return;
  put(written_, buffer_.data(), buffer_.size());
  written_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void AtomicFile::sync() {
  flush();
  CHECK(file_ >= 0, "%s: synced or committed after commit()", path_.c_str());
  if (fsync(file_) != 0) throw_write(path_, errno, written_);
}

void AtomicFile::close_part() {
  sync();
  close(file_);
  file_ = -1;
  closed_ = true;
  std::vector<char>().swap(buffer_);
}

void AtomicFile::commit() {
  if (!closed_) sync();
  if (rename(part_.c_str(), path_.c_str()) != 0) throw_write(path_, errno, written_);
  if (file_ >= 0) close(file_);
  file_ = -1;
  closed_ = false;
  const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // The folder may be writable but not readable. The rename is done; syncing it is left to the
  // system.
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

int open_locked(const std::string& path, Lock lock) {
  for (;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0) return -1;
    struct stat mine, named;
    int locked = -1;
    do {
      locked = flock(file, LOCK_EX | (lock == Lock::kTry ? LOCK_NB : 0));
    } while (locked != 0 && errno == EINTR);
    if (locked != 0) {
      const int error = errno;
      close(file);
      errno = error;
      return -1;
    }
    const bool same = fstat(file, &mine) == 0 && lstat(path.c_str(), &named) == 0 &&
                      mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
    if (same) return file;
    close(file);
  }
}

namespace {

// The bytes of `pattern` before the first component that does not exist as it is written.
size_t existing_beginning(const std::string& pattern) {
  size_t known = 0;
  for (size_t at = 0; at < pattern.size();) {
    at = std::min(pattern.find('/', at + 1), pattern.size());
    std::error_code ignored;
    if (!std::filesystem::exists(pattern.substr(0, at), ignored)) break;
    known = at;
  }
  return known;
}

}  // namespace

std::string escaped_pattern(const std::string& pattern) {
  const size_t known = existing_beginning(pattern);
  std::string escaped;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool special = pattern[i] == '\\' || std::string_view("*?[").find(pattern[i]) < 3;
    if (i < known && special) escaped += '\\';
    escaped += pattern[i];
  }
  return escaped;
}

namespace {

// What glob() could not look at: it leaves such paths out, as if they did not exist.
thread_local std::string not_seen;

// Whether there may be paths that a pattern means where this error came.
bool may_hide_paths(const char* path, int error) {
  if (error == ENOENT || error == ENOTDIR) return false;
  // That of every disk is closed, and empty.
  return (std::string(path) + "/").find("/lost+found/") == std::string::npos;
}

int note_unseen(const char* path, int error) {
  if (!may_hide_paths(path, error)) return 0;
  if (not_seen.empty()) not_seen = std::string(path) + ": " + strerror(error);
  return 1;
}

// The calls by which glob() looks at the file system.
glob_t noting_calls() {
  glob_t calls = {};
  calls.gl_opendir = [](const char* path) -> void* { return opendir(path); };
  calls.gl_readdir = [](void* folder) { return readdir(static_cast<DIR*>(folder)); };
  calls.gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
  // For a link in a folder, before its name is compared: whether it is a folder. If that is not
  // known it counts as one, which cannot be opened if the pattern means it.
  calls.gl_stat = [](const char* path, struct stat* info) {
    if (stat(path, info) == 0) return 0;
    if (!may_hide_paths(path, errno)) return -1;
    info->st_mode = S_IFDIR;
    return 0;
  };
  // For a name without *, in each folder that the pattern before it matches.
  calls.gl_lstat = [](const char* path, struct stat* info) {
    const int failed = lstat(path, info);
    if (failed != 0) note_unseen(path, errno);
    return failed;
  };
  return calls;
}

}  // namespace

std::vector<std::string> paths_matching(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found = noting_calls();
  not_seen.clear();
  const int status = glob(escaped_pattern(pattern).c_str(), GLOB_ALTDIRFUNC, note_unseen, &found);
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  const bool failed = status != 0 && status != GLOB_NOMATCH;
  if (failed && not_seen.empty()) not_seen = pattern;
  if (!not_seen.empty()) {
    throw ReadFailed("cannot search " + not_seen, "check the folder's permissions");
  }
  return paths;
}

std::vector<std::string> names_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return names;
  }
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) {
    throw ReadFailed("cannot read the folder " + folder + ": " + error.message(),
                     too_many_files(error.value())
                         ? kTooManyFiles
                         : "check its permissions and its disk: ls -la " + folder);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw UserError(
        strprintf("cannot make the folder %s: %s", path.c_str(), error.message().c_str()),
        "check the path and the permissions of its folder");
}

}  // namespace assay
