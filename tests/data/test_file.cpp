#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"
#include "data/sha256.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/temp_folder.h"

namespace assay::test_file {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a file without an end is refused") {
  expect_error([] { read_file("/dev/zero"); }, "/dev/zero has more than 1024 MiB");
}

TEST_CASE("a file is complete or absent") {
  const TempFolder folder;
  const std::string path = folder / "a";
  {
    AtomicFile file(path);
    file.write("half", 4);
    REQUIRE(file.bytes() == 4);
  }
  REQUIRE(fs::is_empty(folder.path()));

  write_file_atomic(path, "first");
  REQUIRE(read_file(path) == "first");
  {
    AtomicFile file(path);
    file.write("second", 6);
    file.flush();
    REQUIRE(read_file(path) == "first");
    REQUIRE(read_file(file.part_path()) == "second");
    file.write_at(0, "S", 1);
    file.commit();
  }
  REQUIRE(read_file(path) == "Second");
  REQUIRE(!fs::exists(path + ".part"));

  // A part file left by a killed process is overwritten.
  write_file_atomic(path + ".part", "left over and longer than the new content");
  write_file_atomic(path, "new");
  REQUIRE(read_file(path) == "new");
}

TEST_CASE("large writes are complete") {
  const TempFolder folder;
  std::string bytes(3'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  AtomicFile file(folder / "big");
  file.write(bytes.data(), 7);
  file.write(bytes.data() + 7, 1'000'000);
  for (size_t i = 1'000'007; i < bytes.size(); i += 999)
    file.write(bytes.data() + i, std::min<size_t>(999, bytes.size() - i));
  file.commit();
  REQUIRE(read_file(folder / "big") == bytes);
  REQUIRE(sha256_file(folder / "big") == sha256_hex(bytes));
}

TEST_CASE("two writers of one file do not mix") {
  const TempFolder folder;
  AtomicFile first(folder / "a");
  REQUIRE_THROWS_AS(AtomicFile(folder / "a"), UserError);
  first.write("1", 1);
  first.commit();
  REQUIRE(read_file(folder / "a") == "1");
}

TEST_CASE("a full disk loses nothing") {
  const TempFolder folder;
  const std::string path = folder / "a";
  write_file_atomic(path, "precious");
  const FileSizeLimit full(4096);
  std::string message;
  try {
    write_file_atomic(path, std::string(1 << 20, 'x'));
  } catch (const UserError& e) {
    message = e.what();
    REQUIRE(e.hint().find("free space") == 0);
  }
  REQUIRE(message.find(path) != std::string::npos);
  REQUIRE(message.find("after 4096 bytes") != std::string::npos);
  REQUIRE(read_file(path) == "precious");
  REQUIRE(!fs::exists(path + ".part"));
}

TEST_CASE("paths that cannot be read or written") {
  const TempFolder folder;
  REQUIRE_THROWS_AS(read_file(folder / "missing"), UserError);
  REQUIRE_THROWS_AS(read_file(folder.path()), UserError);
  REQUIRE_THROWS_AS(sha256_file(folder / "missing"), UserError);
  REQUIRE_THROWS_AS(sha256_file(folder.path()), UserError);
  REQUIRE_THROWS_AS(AtomicFile(folder.path()), UserError);
  REQUIRE_THROWS_AS(AtomicFile("/dev/full"), UserError);
  REQUIRE_THROWS_AS(AtomicFile(folder / "no/such/folder"), UserError);
  write_file_atomic(folder / "file", "");
  REQUIRE_THROWS_AS(make_folders(folder / "file/below"), UserError);
}

TEST_CASE("for what is no file nobody waits") {
  const TempFolder folder;
  const std::string pipe = folder / "pipe", device = folder / "device", none = folder / "none";
  REQUIRE(mkfifo(pipe.c_str(), 0644) == 0);
  fs::create_symlink("/dev/zero", device);
  for (const std::string& path : {pipe, device}) {
    const std::string says = "cannot read " + path + ": it is a pipe or a device";
    expect_error([&] { read_regular_file(path); }, says);
    expect_error([&] { sha256_file(path); }, says);
  }
  expect_error([&] { read_regular_file(none); }, "No such file");
  expect_error([&] { read_regular_file(folder.path()); }, "Is a directory");
}

TEST_CASE("a link is not written in place") {
  const TempFolder folder;
  const std::string file = folder / "file", link = folder / "link", pipe = folder / "pipe";
  write_file_atomic(file, "");
  fs::create_symlink("nowhere", link);
  REQUIRE(mkfifo(pipe.c_str(), 0644) == 0);
  require_no_link(file);
  require_no_link(folder / "none");
  expect_error([&] { require_no_link(link); }, link + " is a link");
  expect_error([&] { require_no_link(pipe); }, pipe + " is a pipe or a device");
}

TEST_CASE("names in a folder") {
  const TempFolder folder;
  REQUIRE(names_in(folder.path()).empty());
  REQUIRE(names_in(folder / "missing").empty());
  write_file_atomic(folder / "b", "");
  make_folders(folder / "a/below");
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"a", "b"});
  REQUIRE(names_in(folder / "b").empty());
  REQUIRE_THROWS_AS(names_in(folder / std::string(300, 'x')), UserError);
}

TEST_CASE("paths of a pattern, below folders whose names hold its characters") {
  const TempFolder folder;
  for (const char* name : {"exp[1]", "exp1", "a*b"}) {
    make_folders(folder / name);
    write_file_atomic(folder / (std::string(name) + "/x.bin"), "");
    write_file_atomic(folder / (std::string(name) + "/y[0].bin"), "");
  }
  using Paths = std::vector<std::string>;
  REQUIRE(paths_matching(folder / "exp[1]/*.bin") ==
          Paths{folder / "exp[1]/x.bin", folder / "exp[1]/y[0].bin"});
  REQUIRE(paths_matching(folder / "a*b/y[0].bin") == Paths{folder / "a*b/y[0].bin"});
  REQUIRE(paths_matching(folder / "exp[12]/x.bin") == Paths{folder / "exp1/x.bin"});
  REQUIRE(paths_matching(folder / "*/x.bin").size() == 3);
  REQUIRE(paths_matching(folder / "exp1/z*").empty());
  REQUIRE(paths_matching(folder / "none/x.bin").empty());
  REQUIRE(paths_matching(folder / "none/*.bin").empty());
  REQUIRE(paths_matching(folder / "exp1/x.bin/*.bin").empty());
  REQUIRE(escaped_pattern(folder / "exp[1]/*.bin") == folder / "exp\\[1]/*.bin");
  REQUIRE(escaped_pattern(folder / "exp[12]/*.bin") == folder / "exp[12]/*.bin");
}

TEST_CASE("a pattern leaves out no folder that cannot be searched") {
  const TempFolder folder;
  make_folders(folder / "a/good/b");
  write_file_atomic(folder / "a/good/b/x_0.bin", "");
  make_folders(folder / "a/lost+found");
  fs::create_symlink("nowhere", folder / "a/dangling");
  using Paths = std::vector<std::string>;
  REQUIRE(paths_matching(folder / "a/*/b/x_*.bin") == Paths{folder / "a/good/b/x_0.bin"});

  fs::create_symlink("loop", folder / "a/loop");  // to itself: fails for root too
  for (const char* pattern : {"a/*/b/x_*.bin", "a/*/x_*.bin", "a/*/b/x_0.bin", "a/loop/x_0.bin"}) {
    expect_error([&] { paths_matching(folder / pattern); }, "cannot search " + folder / "a/loop");
  }
  REQUIRE(paths_matching(folder / "a/g*/b/x_*.bin") == Paths{folder / "a/good/b/x_0.bin"});

  make_folders(folder / "c/lost+found of a");  // only the name alone is that of every disk
  fs::create_symlink("loop", folder / "c/lost+found of a/loop");
  expect_error([&] { paths_matching(folder / "c/*/loop/x.bin"); }, "cannot search");
}

TEST_CASE("SHA-256 of the standard's examples") {
  REQUIRE(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  REQUIRE(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("the hash of this program, and a hash in a message") {
  REQUIRE(program_sha256() == sha256_file("/proc/self/exe"));
  REQUIRE(short_hash(sha256_hex("abc")) == "SHA-256 ba7816bf8f01cfea");
}

}  // namespace
}  // namespace assay::test_file
