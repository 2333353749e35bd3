#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "data/documents.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"
#include "tests/data/temp_folder.h"

namespace assay::test_documents {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

Texts documents(const std::vector<std::string>& paths, const DocumentOptions& options = {}) {
  DocumentReader reader(paths, options);
  std::vector<std::string> texts;
  for (RawDocument raw; reader.next(raw);) texts.push_back(document_text(raw, options));
  return texts;
}

TEST_CASE("documents of text files") {
  const TempFolder folder;
  write_file_plain(folder / "a.txt",
                   " one\n<|endoftext|>\ntwo \xFF<|endoftext|>\n<|endoftext|>three <|end");
  REQUIRE(documents({folder / "a.txt"}) == Texts{"one", "two \xFF", "", "three <|end"});
  REQUIRE(documents({folder / "a.txt"}, {.trim = Trim::kKeep}) ==
          Texts{" one\n", "\ntwo \xFF", "", "three <|end"});
  REQUIRE(documents({folder / "a.txt"}, {.unfinished = Unfinished::kDrop}) ==
          Texts{"one", "two \xFF", ""});
  REQUIRE(documents({folder / "a.txt"}, {.separator = "\n"}).size() == 4);
  REQUIRE(documents({folder / "a.txt"}, {.separator = ""}).size() == 1);
  write_file_plain(folder / "b.txt", "");
  write_file_plain(folder / "c.txt", "x<|endoftext|>");
  REQUIRE(documents({folder / "b.txt", folder / "c.txt"}) == Texts{"x"});
}

TEST_CASE("a byte order mark is not the beginning of a text") {
  const TempFolder folder;
  const std::string mark = "\xef\xbb\xbf";
  write_file_plain(folder / "a.txt", mark + "one<|endoftext|>" + mark + "two");
  write_file_plain(folder / "b.jsonl", mark + "{\"text\": \"three\"}\n");
  write_file_plain(folder / "c.txt", mark);
  write_file_plain(folder / "d.txt", "\xef\xbb");
  REQUIRE(documents({folder / "a.txt", folder / "b.jsonl", folder / "c.txt", folder / "d.txt"}) ==
          Texts{"one", mark + "two", "three", "\xef\xbb"});
}

TEST_CASE("documents of JSONL, and of folders") {
  const TempFolder folder;
  fs::create_directories(folder / "in/deep");
  write_file_plain(folder / "in/b.jsonl",
                   "{\"text\": \" a\\nb<|endoftext|>\", \"n\": 1}\r\n\n{\"text\":\"c\"}");
  write_file_plain(folder / "in/a.txt", "first");
  write_file_plain(folder / "in/deep/z.ndjson", "{\"text\":\"last\"}\n");
  write_file_plain(folder / "in/image.png", "not text");
  REQUIRE(documents({folder / "in"}) == Texts{"first", "a\nb<|endoftext|>", "c", "last"});
  write_file_plain(folder / "field.jsonl", "{\"body\":\"x\"}\n");
  REQUIRE(documents({folder / "field.jsonl"}, {.field = "body"}) == Texts{"x"});
  REQUIRE(documents({folder / "in/image.png"}) == Texts{"not text"});
}

TEST_CASE("compressed files hold the same documents") {
  const TempFolder folder;
  fs::create_directories(folder / "in");
  write_file_plain(folder / "in/a.txt.gz", gzip("one<|endoftext|>two"));
  write_file_plain(folder / "in/b.jsonl.zst",
                   zstd("{\"text\": \"a\"}\n") + zstd("{\"text\": \"b\"}"));
  write_file_plain(folder / "in/c.json.gz", gzip("{\"text\": \"c\"}\n"));
  write_file_plain(folder / "in/manifest.json", "{}");
  write_file_plain(folder / "in/image.png.gz", gzip("not text"));
  REQUIRE(documents({folder / "in"}) == Texts{"one", "two", "a", "b", "c"});
  expect_error([&] { documents({folder / "in/manifest.json"}); },
               "manifest.json line 1 has no field");
  write_file_plain(folder / "cut.jsonl.gz",
                   gzip("{\"text\": \"a\"}\n{\"text\": \"b\"}\n").substr(0, 35));
  expect_error([&] { documents({folder / "cut.jsonl.gz"}); },
               "cut.jsonl.gz is cut short: it ends in line 3");
}

TEST_CASE("the parts of a long document encode to the same tokens as the whole") {
  const TempFolder folder;
  std::string text;
  RandomSequence random({.seed = 5});
  while (text.size() < (5 << 20)) text += random.below(9) ? " the cat" : "\n  \xE6\x97\xA5 12";
  write_file_plain(folder / "a.txt", "one<|endoftext|>" + text + "<|endoftext|>two");
  const DocumentOptions options{.part_bytes = 3 << 20};
  DocumentReader reader({folder / "a.txt"}, options);
  std::string joined;
  std::vector<int32_t> tokens;
  Encoder encoder(small_tokenizer());
  int parts = 0;
  for (RawDocument raw; reader.next(raw); ++parts) {
    const std::string part = document_text(raw, {});
    joined += part + (raw.ends ? "|" : "");
    encoder.encode(part, tokens);
  }
  REQUIRE(parts == 4);
  const std::string stripped = text.substr(text.find_first_not_of(" \n"));
  REQUIRE(joined == "one|" + stripped + "|two|");
  std::vector<int32_t> whole;
  for (const std::string& document : {std::string("one"), stripped, std::string("two")})
    encoder.encode(document, whole);
  REQUIRE(tokens == whole);
}

TEST_CASE("random JSONL is read or refused") {
  const TempFolder folder;
  const std::string good =
      "{\"text\": \"a\\u00e9\\n\", \"n\": [1, {\"x\": null}]}\n{\"text\":\"b\"}\n";
  RandomSequence random({.seed = 4});
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string text = good;
    text[random.below(static_cast<uint32_t>(text.size()))] = static_cast<char>(random.next());
    if (random.below(3) == 0) text.resize(random.below(static_cast<uint32_t>(text.size())));
    write_file_plain(folder / "a.jsonl", text);
    try {
      documents({folder / "a.jsonl"});
    } catch (const UserError&) {
      ++refused;
    }
  }
  REQUIRE(refused > 60);
  REQUIRE(refused < 600);
}

}  // namespace
}  // namespace assay::test_documents
