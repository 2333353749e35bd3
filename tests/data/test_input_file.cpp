#include "base/random.h"
#include "data/input_file.h"
#include "data/sha256.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_input_file {
namespace {

// Reads a file's text in pieces of `bytes`.
std::string read_all(const std::string& path, size_t bytes) {
  InputFile file(path);
  std::string text, piece(bytes, '\0');
  while (const size_t got = file.read(piece.data(), bytes)) text.append(piece, 0, got);
  REQUIRE(file.read(piece.data(), bytes) == 0);
  return text;
}

// A text that compresses well in some parts and not at all in others, over several blocks of either
// format.
std::string some_text() {
  std::string text;
  RandomSequence random({.seed = 3});
  while (text.size() < 700'000) {
    for (int i = 0; i < 300; ++i) text += static_cast<char>(random.next());
    for (int i = 0; i < 100; ++i) text += "the cat sat on the mat\n";
  }
  return text;
}

struct Format {
  const char* extension;
  std::string (*pack)(const std::string&);
};
const Format kFormats[] = {{".gz", gzip}, {".zst", zstd}};

TEST_CASE("compressed files are read as the original text") {
  const TempFolder folder;
  const std::string text = some_text();
  write_file_plain(folder / "a.txt", text);
  REQUIRE(read_all(folder / "a.txt", 1000) == text);
  for (const Format& format : kFormats) {
    const std::string path = folder / "a.txt" + format.extension;
    const std::string packed = format.pack(text);
    write_file_plain(path, packed);
    for (const size_t bytes : {size_t{77}, size_t{1} << 20}) REQUIRE(read_all(path, bytes) == text);
    write_file_plain(path, packed + format.pack("") + format.pack("more\n"));
    REQUIRE(read_all(path, 5000) == text + "more\n");
    write_file_plain(path, format.pack(""));
    REQUIRE(read_all(path, 100) == "");

    write_file_plain(path, packed);
    InputFile file(path);
    std::string all(1 << 20, '\0');
    while (file.read(all.data(), all.size()) > 0) {
    }
    REQUIRE(file.bytes_read() == static_cast<int64_t>(packed.size()));
    REQUIRE(file.sha256() == sha256_hex(packed));
  }
  REQUIRE(unpacked_name("a/b.jsonl.gz") == "a/b.jsonl");
  REQUIRE(unpacked_name("a/b.jsonl.zst") == "a/b.jsonl");
  REQUIRE(unpacked_name("a/b.jsonl") == "a/b.jsonl");
}

TEST_CASE("zeros at the end of a .gz are not text") {
  const TempFolder folder;
  const std::string path = folder / "a.txt.gz", two = gzip("one\n") + gzip("two\n");
  for (const size_t zeros : {1, 511, 1'000'000}) {
    write_file_plain(path, two + std::string(zeros, '\0'));
    for (const size_t bytes : {3, 4096}) REQUIRE(read_all(path, bytes) == "one\ntwo\n");
    write_file_plain(path, two + std::string(zeros, '\0') + gzip("three\n"));
    expect_error([&] { read_all(path, 4096); }, "is damaged: bytes after the zeros");
    write_file_plain(path, std::string(zeros, '\0'));
    expect_error([&] { read_all(path, 4096); }, "a.txt.gz is ");
  }
}

TEST_CASE("damaged or truncated compressed files are refused with the line") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * 7919) + "\n";
  for (const Format& format : kFormats) {
    const std::string path = folder / "a.txt" + format.extension;
    const std::string packed = format.pack(text);
    for (size_t bytes = 0; bytes < packed.size(); bytes += bytes < 40 ? 1 : 97) {
      write_file_plain(path, packed.substr(0, bytes));
      expect_error([&] { read_all(path, 4096); }, "is cut short: it ends in line");
    }
    write_file_plain(path, packed.substr(0, packed.size() - 1));
    expect_error([&] { read_all(path, 4096); }, "ends in line 3001 of its text");
    write_file_plain(path, packed + "no stream");
    expect_error([&] { read_all(path, 4096); }, "is damaged: ");
    write_file_plain(path, text);
    expect_error([&] { read_all(path, 4096); }, "found in line 1 of its text");

    RandomSequence random({.seed = 8});
    int refused = 0;
    for (int round = 0; round < 400; ++round) {
      std::string bad = packed;
      bad[random.below(static_cast<uint32_t>(bad.size()))] ^=
          static_cast<char>(1 + random.below(255));
      write_file_plain(path, bad);
      std::string got = text;  // stays if the changed byte carries no data, e.g. the header's time
      try {
        got = read_all(path, 1 + random.below(100'000));
      } catch (const UserError&) {
        ++refused;
      }
      REQUIRE(got == text);
    }
    REQUIRE(refused > 380);
  }
  expect_error([&] { InputFile file(folder / "gone.gz"); }, "No such file");
  expect_error([&] { read_all(folder.path(), 10); }, "Is a directory");
}

TEST_CASE("a .zst that was packed with a dictionary is not called damaged") {
  const TempFolder folder;
  const std::string path = folder / "a.txt.zst";
  std::string packed = zstd("the cat sat on the mat\n");
  // As zstd -D does, the header names a dictionary, in one byte behind that of the window.
  constexpr size_t kDescriptor = 4;
  const bool has_window = (packed[kDescriptor] & 0x20) == 0;
  packed[kDescriptor] |= 1;
  packed.insert(kDescriptor + 1 + (has_window ? 1 : 0), 1, '\x07');
  write_file_plain(path, packed);
  expect_error([&] { read_all(path, 4096); }, path + " was packed with a dictionary, which is not");
}

}  // namespace
}  // namespace assay::test_input_file
