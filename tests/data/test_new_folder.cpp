#include <filesystem>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/new_folder.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_new_folder {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a new folder is complete or absent") {
  const TempFolder folder;
  const std::string path = folder / "deep/new";
  {
    const NewFolder left(path);
    write_file_atomic(left.part() + "/a", "1");
  }
  REQUIRE(fs::is_empty(folder / "deep"));
  NewFolder made(path + "/");
  write_file_atomic(made.part() + "/a", "2");
  REQUIRE(!fs::exists(path));
  made.commit();
  REQUIRE(read_file(path + "/a") == "2");
  REQUIRE(std::distance(fs::directory_iterator(folder / "deep"), fs::directory_iterator()) == 1);
}

TEST_CASE("what a killed process left of a new folder is removed") {
  const TempFolder folder;
  fs::create_directories(folder / "new.part/old");
  write_file_atomic(folder / "new.part.lock", "");
  fs::create_directories(folder / "new");  // empty: it is replaced
  NewFolder made(folder / "new");
  REQUIRE(fs::is_empty(made.part()));
  write_file_atomic(made.part() + "/a", "1");
  made.commit();
  REQUIRE(read_file(folder / "new/a") == "1");
  REQUIRE(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("the lock of a folder that was complete when its process was killed is removed") {
  const TempFolder folder;
  fs::create_directories(folder / "new/a");
  write_file_atomic(folder / "new.part.lock", "");
  expect_error([&] { require_new_folder(folder / "new", "another"); }, "holds files already");
  REQUIRE(!fs::exists(folder / "new.part.lock"));
}

TEST_CASE("a new folder has one writer") {
  const TempFolder folder;
  std::optional<NewFolder> first(folder / "new");
  expect_error([&] { NewFolder(folder / "new"); }, "new is being written by another process");
  std::thread second([&] {
    NewFolder waits(folder / "new", NewFolder::WhenHeld::kWait);
    write_file_atomic(waits.part() + "/a", "second");
    waits.commit();
  });
  write_file_atomic(first->part() + "/a", "first");
  first.reset();
  second.join();
  REQUIRE(read_file(folder / "new/a") == "second");
}

TEST_CASE("folders that hold something are refused") {
  const TempFolder folder;
  write_file_atomic(folder / "file", "");
  expect_error([&] { require_new_folder(folder / "file", "another"); }, "is a file, not a folder");
  expect_error([&] { require_new_folder(folder.path(), "another"); }, "holds files already");
  expect_error([&] { require_new_folder("", "another"); }, "is empty");
  require_new_folder(folder / "none", "another");
}

TEST_CASE("a link is refused before anything is written") {
  const TempFolder folder;
  fs::create_directories(folder / "elsewhere");
  fs::create_symlink("elsewhere", folder / "linked");
  fs::create_symlink("nowhere", folder / "dangling");
  for (const char* name : {"linked", "linked/", "dangling"}) {
    expect_error([&] { require_new_folder(folder / name, "another"); },
                 std::string(name) + " is a link, whose place a new folder cannot take");
  }
}

}  // namespace
}  // namespace assay::test_new_folder
