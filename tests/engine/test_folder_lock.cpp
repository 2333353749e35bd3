#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "engine/run/folder_lock.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_folder_lock {
namespace {

// A folder whose lock is held, as by a process of that pid.
class HeldFolder {
 public:
  explicit HeldFolder(const std::string& pid) {
    file_ = open((folder_ / kFolderLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    REQUIRE(flock(file_, LOCK_EX | LOCK_NB) == 0);
    REQUIRE(write(file_, pid.data(), pid.size()) == ssize_t(pid.size()));
  }
  ~HeldFolder() { close(file_); }
  void release() { flock(file_, LOCK_UN); }
  const std::string& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
  int file_;
};

}  // namespace

TEST_CASE("a folder that a running process holds is refused with its pid") {
  const std::string pid = std::to_string(getpid());
  const HeldFolder held(pid);
  expect_error([&] { FolderLock(held.path(), "choose another --run"); },
               "is in use by another process (pid " + pid + ")");
  REQUIRE(folder_in_use(held.path()));
}

TEST_CASE("a folder whose holder is being ended is waited for") {
  HeldFolder held("999999999");  // no process has this number: its files are still to be closed
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held.release();
  });
  REQUIRE_NOTHROW(FolderLock(held.path(), "choose another --run"));
  ending.join();
  REQUIRE_FALSE(folder_in_use(held.path()));
}

TEST_CASE("what a lock that is a link leads to is neither written nor made") {
  const TempFolder folder;
  const std::string victim = folder / "victim", lock = folder / kFolderLock;
  write_file_atomic(victim, "precious");
  for (const char* target : {"victim", "absent"}) {
    std::filesystem::create_symlink(target, lock);
    expect_error([&] { FolderLock(folder.path(), "choose another --run"); }, lock + " is a link");
    REQUIRE_FALSE(folder_in_use(folder.path()));
    std::filesystem::remove(lock);
  }
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"victim"});
  REQUIRE(read_file(victim) == "precious");
}

}  // namespace assay::test_folder_lock
