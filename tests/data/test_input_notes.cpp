#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"
#include "data/file_kind.h"
#include "data/prepare.h"
#include "data/utf8.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"
#include "tests/data/temp_folder.h"

namespace assay::test_input_notes {
namespace {

namespace fs = std::filesystem;

TEST_CASE("the first byte that is not UTF-8") {
  const std::string eight = "12345678";
  struct Case {
    std::string text;
    size_t wrong;
  };
  const Case cases[] = {{"", 0},
                        {"plain", 5},
                        {eight + eight + "caf\xc3\xa9", 21},
                        {"\xe2\x82\xac \xf0\x9f\x98\x80", 8},
                        {"\xf4\x8f\xbf\xbf", 4},  // U+10FFFF
                        {"\xed\x9f\xbf", 3}};
  for (const Case& c : cases) REQUIRE(first_not_utf8(c.text) == c.text.size());
  const Case wrong[] = {{"caf\xe9", 3},          {eight + "\xff", 8},
                        {"\xc0\x80", 0},         {"\xe0\x80\x80", 0},  // overlong
                        {"\xed\xa0\x80", 0},     {"a\xf4\x90\x80\x80", 1},
                        {eight + "ab\x80", 10},  {"\xe2\x82", 0},
                        {"\xe2\x82z", 0},        {std::string("h\0i\0", 4) + "\xfe", 4},
                        {"\xf0\x8f\xbf\xbf", 0}, {"\xc1\xbf", 0}};
  for (const Case& c : wrong) {
    INFO(c.text);
    REQUIRE(first_not_utf8(c.text) == c.wrong);
  }
}

TEST_CASE("documents that are not UTF-8 are counted, and kept") {
  const TempFolder folder;
  fs::create_directories(folder / "in");
  write_file_plain(folder / "in/a.txt", "caf\xc3\xa9<|endoftext|> caf\xe9 one<|endoftext|>two");
  write_file_plain(folder / "in/b.txt", std::string("\xff\xfeh\0i\0", 6));
  write_file_plain(folder / "in/c.jsonl", "{\"text\": \"caf\xc3\xa9\"}\n");
  PrepareConfig config;
  config.inputs = {folder / "in"};
  config.corpus = {.folder = folder / "out"};
  config.val_every = 0;
  const PrepareResult result = prepare(small_tokenizer(), config);
  REQUIRE(result.notes.not_utf8 == 2);
  REQUIRE(result.notes.first_not_utf8 == (folder / "in/a.txt") + ", document 2, byte 3");
  REQUIRE(result.notes.splits == 2);  // of a.txt
  const Manifest manifest = read_manifest(folder / "out");
  REQUIRE(manifest.documents("train") == 5);
  std::vector<int64_t> counts;
  for (const SourceEntry& source : manifest.sources) counts.push_back(source.not_utf8);
  REQUIRE(counts == std::vector<int64_t>{1, 1, 0});
  InputNotes notes;
  train_tokenizer(config.inputs, {}, 257, 3, notes);
  REQUIRE(notes.not_utf8 == 2);
  REQUIRE(notes.files == 3);
}

TEST_CASE("a long document is counted once, wherever its bytes are wrong") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 4'000'000; ++i) text += i % 500'000 == 499'999 ? " \xff" : " a";
  write_file_plain(folder / "a.txt", "one<|endoftext|>" + text + "<|endoftext|>two");
  InputNotes notes;
  train_tokenizer({folder / "a.txt"}, {.part_bytes = 1 << 20}, 257, 2, notes);
  REQUIRE(notes.not_utf8 == 1);
  REQUIRE(notes.first_not_utf8.find(", document 2, byte ") != std::string::npos);
}

TEST_CASE("text documents with NUL bytes are counted: UTF-16 may be UTF-8") {
  const TempFolder folder;
  write_file_plain(folder / "a.txt", "one<|endoftext|>two");
  write_file_plain(folder / "b.txt", std::string("h\0i\0 \0h\0o\0", 10));
  write_file_plain(folder / "c.txt", std::string("one<|endoftext|>x\0\xff", 19));
  write_file_plain(folder / "d.jsonl", "{\"text\": \"h\\u0000\"}\n");
  PrepareConfig config;
  config.inputs = {folder / "a.txt", folder / "b.txt", folder / "c.txt", folder / "d.jsonl"};
  config.corpus = {.folder = folder / "out"};
  config.val_every = 0;
  const InputNotes prepared = prepare(small_tokenizer(), config).notes;
  REQUIRE(prepared.nul == 2);
  REQUIRE(prepared.first_nul == (folder / "b.txt") + ", document 1, byte 1");
  REQUIRE(prepared.not_utf8 == 1);
  REQUIRE(prepared.first_not_utf8 == (folder / "c.txt") + ", document 2, byte 2");
  InputNotes notes;
  train_tokenizer(config.inputs, {}, 257, 2, notes);
  REQUIRE(notes.nul == 2);
}

TEST_CASE("what cannot be read in a folder is left out and counted") {
  const TempFolder folder;
  fs::create_directories(folder / "in/deep");
  fs::create_directories(folder / "other");
  write_file_plain(folder / "in/a.txt", "one");
  write_file_plain(folder / "in/deep/b.md", "two");
  write_file_plain(folder / "in/run.py", "x");
  write_file_plain(folder / "in/page.html", "x");
  write_file_plain(folder / "in/LICENSE", "x");
  write_file_plain(folder / "other/c.txt", "three");
  fs::create_symlink("loop", folder / "in/loop");
  fs::create_symlink("nowhere.txt", folder / "in/z-dangling.txt");
  fs::create_symlink("../other", folder / "in/z-folder");
  fs::create_symlink("../other/c.txt", folder / "in/linked.txt");
  const DocumentReader reader({folder / "in"}, {});
  const LeftOut& left = reader.left_out();
  REQUIRE(reader.files() == std::vector<std::string>{folder / "in/a.txt", folder / "in/deep/b.md",
                                                     folder / "in/linked.txt"});
  REQUIRE(left.unreadable == 3);
  REQUIRE(left.first.find("in/") != std::string::npos);
  REQUIRE(left.other_files == 3);
  REQUIRE(left.kinds == std::set<std::string>{"", ".html", ".py"});

  fs::create_directories(folder / "bad");
  fs::create_symlink("loop", folder / "bad/loop");
  expect_error([&] { DocumentReader({folder / "bad"}, {}); }, "bad/loop: Too many levels");
  // Given by name, such a file is an error.
  expect_error([&] { DocumentReader({folder / "bad/loop"}, {}); }, "Too many levels");
  expect_error([&] { DocumentReader({folder / "in/z-dangling.txt"}, {}); }, "No such file");
}

TEST_CASE("JSONL is known by its extension in any case, and noticed under another name") {
  const TempFolder folder;
  fs::create_directories(folder / "in");
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  write_file_plain(folder / "in/A.JSONL", lines);
  write_file_plain(folder / "in/b.Json.GZ", gzip(lines));
  write_file_plain(folder / "in/c.TXT", "three");
  write_file_plain(folder / "in/d.JSON", "{}");
  PrepareConfig config{.inputs = {folder / "in"}, .corpus = {.folder = folder / "out"}};
  config.val_every = 0;
  PrepareResult result = prepare(small_tokenizer(), config);
  REQUIRE(result.manifest.documents("train") == 5);
  REQUIRE(result.notes.left_out.other_files == 1);
  REQUIRE(result.notes.like_jsonl.files == 0);

  write_file_plain(folder / "part.jsonl.txt", "\n " + lines);
  write_file_plain(folder / "none.txt", "{\"body\": \"one\"}\n");
  write_file_plain(folder / "cut.txt", "{\"text\": \"one\", \n");
  write_file_plain(folder / "lines", "{\"text\": \"one\"}");
  InputNotes notes;
  const std::vector<std::string> files = {folder / "none.txt", folder / "cut.txt",
                                          folder / "part.jsonl.txt", folder / "lines"};
  train_tokenizer(files, {}, 257, 2, notes);
  REQUIRE(notes.like_jsonl.files == 2);
  REQUIRE(notes.like_jsonl.first == folder / "part.jsonl.txt");
  config.inputs = {folder / "lines"};
  config.val_every = 20;
  config.corpus.folder = folder / "out2";
  expect_error([&] { prepare(small_tokenizer(), config); },
               "lines was read as text, but its first");
}

TEST_CASE("a file that is given again is read once") {
  const TempFolder folder;
  fs::create_directories(folder / "in");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat " + std::to_string(i) + "<|endoftext|>";
  write_file_plain(folder / "in/a.txt", text);
  PrepareConfig config{.inputs = {folder / "in"}, .corpus = {.folder = folder / "once"}};
  REQUIRE(prepare(small_tokenizer(), config).notes.repeated.files == 0);
  write_file_plain(folder / "copy.txt", text);  // other files stay, whatever is in them
  REQUIRE(DocumentReader({folder / "in", folder / "copy.txt"}, {}).files().size() == 2);

  fs::create_symlink("in/a.txt", folder / "link.txt");
  config.inputs = {folder / "in", folder / "in/../in/a.txt", folder / "link.txt"};
  config.corpus.folder = folder / "again";
  const PrepareResult result = prepare(small_tokenizer(), config);
  REQUIRE(result.notes.files == 1);
  REQUIRE(result.notes.repeated.files == 2);
  REQUIRE(result.notes.repeated.first ==
          (folder / "in/../in/a.txt") + ", as " + (folder / "in/a.txt"));
  REQUIRE(result.manifest.sources.size() == 1);
  for (const char* shard : {"corpus_val_000000.bin", "corpus_train_000001.bin"})
    REQUIRE(read_file(folder / "again/" + shard) == read_file(folder / "once/" + shard));
}

TEST_CASE("a file beside its packed form is noted, and both are read") {
  const TempFolder folder;
  fs::create_directories(folder / "in/deep");
  write_file_plain(folder / "in/a.txt", "one");
  write_file_plain(folder / "in/a.txt.GZ", gzip("one"));
  write_file_plain(folder / "in/b.jsonl.gz", gzip("{\"text\": \"two\"}\n"));
  write_file_plain(folder / "in/b.jsonl.zst", zstd("{\"text\": \"two\"}\n"));
  write_file_plain(folder / "in/deep/a.txt", "three");  // another folder, another name
  write_file_plain(folder / "in/a.md.gz", gzip("four"));
  PrepareConfig config{.inputs = {folder / "in"}, .corpus = {.folder = folder / "out"}};
  config.val_every = 0;
  const PrepareResult result = prepare(small_tokenizer(), config);
  REQUIRE(result.manifest.documents("train") == 6);
  REQUIRE(result.notes.packed_twins.files == 2);
  const std::string first = (folder / "in/a.txt.GZ") + ", beside " + (folder / "in/a.txt");
  REQUIRE(result.notes.packed_twins.first == first);
  InputNotes notes;
  train_tokenizer({folder / "in/a.txt", folder / "in/../in/a.txt.GZ"}, {}, 257, 2, notes);
  REQUIRE(notes.packed_twins.files == 1);
  REQUIRE(DocumentReader({folder / "in/deep"}, {}).packed_twins().files == 0);
}

TEST_CASE("a compressed or binary file under another name is refused") {
  const TempFolder folder;
  const auto read = [&](const std::string& name, const std::string& bytes) {
    write_file_plain(folder / name, bytes);
    DocumentReader reader({folder / name}, {});
    std::string text;
    for (RawDocument raw; reader.next(raw);) text += document_text(raw, {});
    return text;
  };
  struct Case {
    const char* name;
    std::string bytes;
    const char* kind;
  };
  const std::string text(300, 'x');
  const auto tar = [](const std::string& mark) {
    std::string bytes(10240, '\0');
    bytes.replace(0, 5, "a.txt").replace(257, mark.size(), mark).replace(512, 4, "text");
    return bytes;
  };
  const std::string posix("ustar\0", 6), gnu("ustar  \0", 8);
  const Case cases[] = {
      {"z.txt", gzip(text), "a gzip file"},
      {"z.md", zstd(text), "a zstd file"},
      {"z.txt.gz", gzip(gzip(text)), "a gzip file"},
      {"z.txt.bz2", "BZh91AY&SY\x10\xa9 b", "a bzip2 file"},
      {"empty.bz2", std::string("BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0", 14), "a bzip2 file"},
      {"z.xz", std::string("\xfd\x37zXZ\0\0\x04", 8), "an xz file"},
      {"z.zip", "PK\x03\x04\x14", "a zip file"},
      {"z.parquet", std::string("PAR1\x15\x04\x15\0", 8), "a Parquet file"},
      {"z.npy", std::string("\x93NUMPY\x01\0v\0", 10), "a NumPy array"},
      {"z.db", std::string("SQLite format 3\0\x10", 17), "an SQLite database"},
      {"z.feather", std::string("ARROW1\0\0\xff\xff\xff\xff", 12), "an Arrow file"},
      {"z.arrow", std::string("\xff\xff\xff\xff\x98\x01\0\0\x10\0\0\0", 12), "an Arrow stream"},
      {"z.txt", tar(posix), "a tar archive"},
      {"z.tar", tar(gnu), "a tar archive"},
      {"z.tar.gz", gzip(tar(posix)), "a tar archive"},
      {"z.tar.zst", zstd(tar(gnu)), "a tar archive"}};
  for (const Case& c : cases)
    expect_error([&] { read(c.name, c.bytes); },
                 (folder / c.name) + " is " + c.kind + ", not text");
  for (const char* plain : {"BZh is how bzip2 begins", "BZh9 too", "PAR1 is a magic number",
                            "SQLite format 3 is old", "PK", "(\xb5", "\x1f", "7zXZ"})
    REQUIRE(read("plain.txt", plain) == plain);
  const std::string about_tar = std::string(257, 'x') + "ustar  is what tar writes here";
  for (const std::string& plain : {about_tar, about_tar.substr(0, 262)})
    REQUIRE(read("plain.txt", plain) == plain);
  for (const char* latin1 : {"\xff\xff\xff\xffhttp", "\xff\xff\xff\xff"})
    REQUIRE(read("plain.txt", latin1) == latin1);
}

TEST_CASE("JSON that is not one object per line says what it is") {
  const TempFolder folder;
  const auto read = [&](const std::string& text) {
    write_file_plain(folder / "a.json", text);
    return [&] {
      DocumentReader reader({folder / "a.json"}, {});
      for (RawDocument raw; reader.next(raw);) document_text(raw, {});
    };
  };
  for (const char* array :
       {"[{\"text\": \"a\"}, {\"text\": \"b\"}]", "[\n {\"text\": \"a\"}\n]", " ["})
    expect_error(read(array), "a.json is one JSON array; expected one object per line");
  expect_error(read("{\n  \"text\": \"a\"\n}\n"), "a.json is JSON over several lines");
  expect_error(read("{\"text\": \"a\"}\n[1]\n"), "line 2 is a list, not a JSON object");
  expect_error(read("{\"text\": }\n"), "line 1 is not JSON: byte 10");
}

TEST_CASE("a file of another kind says what it looks like") {
  REQUIRE(seems_to_be("{\"text\": 1}") == " (it looks like JSON)");
  REQUIRE(seems_to_be("\n[1, 2]") == " (it looks like JSON)");
  REQUIRE(seems_to_be("Once upon a time \xe2\x82") == " (it looks like text)");
  REQUIRE(seems_to_be(std::string("\x1f\x8b\x08\0", 4)) == " (it looks like a gzip file)");
  REQUIRE(seems_to_be(std::string("\x01\0\0\0", 4)) == "");
  REQUIRE(seems_to_be("") == "");
  const TempFolder folder;
  write_file_plain(folder / "a.bin", "{\"text\": \"x\"}\n");
  expect_error([&] { Shard(folder / "a.bin"); }, "the header alone has 1024 (it looks like JSON)");
  write_file_plain(folder / "a.bin", std::string(3000, 'x'));
  expect_error([&] { Shard(folder / "a.bin"); },
               "expected 20240520 or 20240801 (it looks like text)");
}

}  // namespace
}  // namespace assay::test_input_notes
