#include "base/new_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

std::string without_slash(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

std::string lock_of(const std::string& path) {
  return without_slash(path) + ".part.lock";
}

void sync_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

}  // namespace

void remove_left_lock(const std::string& path) {
  const std::string lock = lock_of(path);
  std::error_code ignored;
  if (!fs::exists(lock, ignored)) return;
  const int file = open_locked(lock, Lock::kTry);
  if (file < 0) return;
  unlink(lock.c_str());
  close(file);
}

void require_new_folder(const std::string& path, const std::string& hint) {
  std::error_code ignored;
  if (path.empty()) throw UserError("the name of the new folder is empty", hint);
  if (fs::is_symlink(without_slash(path), ignored)) {  // no folder can be renamed over it
    throw UserError(path + " is a link, whose place a new folder cannot take", hint);
  }
  if (!fs::exists(path, ignored)) return;
  if (!fs::is_directory(path, ignored)) throw UserError(path + " is a file, not a folder", hint);
  const fs::directory_iterator entries(path, ignored);
  if (ignored) throw UserError("cannot read " + path + ": " + ignored.message(), hint);
  if (entries != fs::directory_iterator()) {
    remove_left_lock(path);
    throw UserError(path + " holds files already", hint);
  }
  if (fs::equivalent(path, ".", ignored)) {
    throw UserError(path + " is the current folder, which is replaced when all is written",
                    "give the name of a new folder, e.g. " + (fs::path(path) / "new").string());
  }
}

std::string NewFolder::part_of(const std::string& path) {
  return without_slash(path) + ".part";
}

NewFolder::NewFolder(const std::string& path, WhenHeld when_held)
    : path_(without_slash(path)), part_(part_of(path_)), lock_(lock_of(path_)) {
  const std::string parent = fs::path(path_).parent_path().string();
  if (!parent.empty()) make_folders(parent);
  file_ = open_locked(lock_, when_held == WhenHeld::kWait ? Lock::kWait : Lock::kTry);
  if (file_ < 0) {
    const int error = errno;
    if (error == EWOULDBLOCK) {
      throw UserError(path_ + " is being written by another process",
                      "wait for it, or choose another path");
    }
    throw UserError("cannot write " + lock_ + ": " + strerror(error),
                    "check the folder and its permissions, or choose another path");
  }
  std::error_code failed;
  fs::remove_all(part_, failed);
  if (!failed) fs::create_directory(part_, failed);
  if (failed) {
    unlink(lock_.c_str());
    close(file_);
    throw UserError("cannot make the folder " + part_ + ": " + failed.message(),
                    "check the folder that it is in and its permissions");
  }
}

NewFolder::~NewFolder() {
  if (file_ < 0) return;
  std::error_code ignored;
  fs::remove_all(part_, ignored);
  unlink(lock_.c_str());
  close(file_);
}

void NewFolder::commit() {
  CHECK(file_ >= 0, "%s: committed twice", path_.c_str());
  sync_folder(part_);
  if (rename(part_.c_str(), path_.c_str()) != 0) {
    throw UserError("cannot rename " + part_ + " to " + path_ + ": " + strerror(errno),
                    "give the name of a folder that is not there yet");
  }
  unlink(lock_.c_str());
  close(file_);
  file_ = -1;
  const std::string parent = fs::path(path_).parent_path().string();
  sync_folder(parent.empty() ? "." : parent);
}

}  // namespace assay
