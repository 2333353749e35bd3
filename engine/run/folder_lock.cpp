#include "engine/run/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/file.h"

namespace assay {

namespace {

std::string recorded_pid(int file) {
  char pid[32] = {};
  return pread(file, pid, sizeof pid - 1, 0) > 0 ? pid : "";
}

// A killed process loses its memory, and with it its command line, before its files are closed.
bool is_ending(const std::string& pid) {
  if (pid.empty()) return false;
  std::ifstream command("/proc/" + pid + "/cmdline");
  return command.get() == std::ifstream::traits_type::eof();
}

// 0, or why it is not locked: EWOULDBLOCK if another process holds it. folder_in_use() holds the
// lock for an instant: a holder that is gone a moment later was one. Somebody who kills a process
// and begins another one at once is not refused for the first.
int take_lock(int file) {
  using std::chrono::milliseconds, std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  for (;;) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return 0;
    const int error = errno;
    const auto longest = is_ending(recorded_pid(file)) ? milliseconds(2000) : milliseconds(10);
    const bool waits = error == EWOULDBLOCK && steady_clock::now() - begin < longest;
    if (error != EINTR && !waits) return error;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& choose) {
  const std::string name = folder + "/" + kFolderLock;
  require_no_link(name);
  file_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) {
    throw UserError("cannot write in the run directory " + folder + ": " + strerror(errno),
                    "check its permissions (ls -ld " + folder + "), or " + choose);
  }
  if (const int error = take_lock(file_); error != 0) {
    if (error != EWOULDBLOCK) {
      close(file_);
      throw UserError(
          "cannot lock " + name + ": " + strerror(error),
          "its file system may not know locks (a network mount without a lock service): "
          "train on another one, or " +
              choose);
    }
    const std::string pid = recorded_pid(file_);
    close(file_);
    throw UserError(
        folder + " is in use by another process" + (pid.empty() ? "" : " (pid " + pid + ")"),
        "wait for it, stop it, or " + choose);
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(file_, 0) != 0 || pwrite(file_, pid.data(), pid.size(), 0) < 0) {
    const std::string why = strerror(errno);
    close(file_);
    throw UserError("cannot write " + name + ": " + why, "check the disk (df -h " + folder + ")");
  }
}

FolderLock::~FolderLock() {
  close(file_);
}

bool folder_in_use(const std::string& folder) {
  const std::string name = folder + "/" + kFolderLock;
  struct stat info = {};
  if (lstat(name.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;  // open() may wait
  const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  const bool in_use = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return in_use;
}

void require_unused(const std::string& folder, const std::string& choose) {
  if (folder_in_use(folder)) const FolderLock lock(folder, choose);
}

}  // namespace assay
