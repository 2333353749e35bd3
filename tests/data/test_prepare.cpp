#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "data/loader.h"
#include "data/pre_split.h"
#include "data/prepare.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/cat_corpus.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/packed.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"
#include "tests/data/temp_folder.h"
#include "tests/data/test_data.h"

namespace assay::test_prepare {
namespace {

namespace fs = std::filesystem;
using Corpus = CatCorpus;
using Texts = std::vector<std::string>;

TEST_CASE("prepare writes shards, tokenizer and manifest") {
  Corpus corpus;
  const std::string out = corpus.config.corpus.folder;
  const PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(decoded(out + "/cats_val_000000.bin", small_tokenizer()) ==
          Texts{"the cat 0", "the cat 4", "the cat 8"});
  REQUIRE(decoded(out + "/cats_train_000001.bin", small_tokenizer()).size() == 7);
  REQUIRE(result.empty_documents == 1);
  const Manifest manifest = read_manifest(out);
  REQUIRE(manifest.documents("train") == 7);
  REQUIRE(manifest.documents("val") == 3);
  REQUIRE(manifest.text_bytes == 90);
  REQUIRE(manifest.shards[1].sha256 == sha256_file(out + "/cats_train_000001.bin"));
  REQUIRE(tokenizer_json(read_tokenizer(out)) == tokenizer_json(small_tokenizer()));
  REQUIRE(verify_corpus(manifest, out).empty());
  REQUIRE(manifest.pre_split == pre_split_tables());
  REQUIRE(manifest.pre_split.find(", Unicode 1") != std::string::npos);
  Manifest older = manifest;  // which does not say it
  older.pre_split = "";
  write_file_plain(out + "/manifest.json", manifest_text(older));
  REQUIRE(read_manifest(out).pre_split.empty());
  REQUIRE(verify_corpus(read_manifest(out), out).empty());

  expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "already holds a corpus");

  // Changes that verify must find.
  std::string bytes = read_file(out + "/cats_train_000001.bin");
  bytes[1030] ^= 1;
  write_file_plain(out + "/cats_train_000001.bin", bytes);
  fs::resize_file(out + "/cats_val_000000.bin", 1000);
  fs::remove(out + "/tokenizer.json");
  const std::vector<std::string> wrong = verify_corpus(manifest, out);
  REQUIRE(wrong.size() == 3);
  REQUIRE(wrong[1].find("SHA-256") != std::string::npos);
}

TEST_CASE("shards do not depend on threads, and documents continue in the next shard") {
  std::vector<std::vector<int32_t>> tokens;
  for (const int threads : {1, 3}) {
    Corpus corpus;
    std::string text;
    for (int i = 0; i < 2000; ++i)
      text += "three four " + std::to_string(i * 7919) + "<|endoftext|>";
    write_file_plain(corpus.folder / "in.txt", text);
    corpus.config.threads = threads;
    corpus.config.corpus.shard_tokens = 5000;
    const Manifest manifest = prepare(small_tokenizer(), corpus.config).manifest;
    REQUIRE(manifest.shards.size() > 4);
    REQUIRE(manifest.documents("train") == 1500);
    std::vector<int32_t> all;
    for (const ShardEntry& shard : manifest.shards) {
      const auto part = read_tokens(corpus.config.corpus.folder + "/" + shard.file, 280);
      REQUIRE(part.size() <= 5000);
      all.insert(all.end(), part.begin(), part.end());
    }
    tokens.push_back(all);
    REQUIRE(all.size() == static_cast<size_t>(manifest.tokens("train") + manifest.tokens("val")));
  }
  REQUIRE(tokens[0] == tokens[1]);
}

TEST_CASE("a corpus has one writer, although its full shards are closed") {
  const TempFolder folder;
  const CorpusWriter::Config config{.folder = folder / "out", .shard_tokens = 1024};
  const std::vector<int32_t> tokens(5000, 65);
  const View<const int32_t, 1> document{tokens.data(), {static_cast<int64_t>(tokens.size())}};
  CorpusWriter first(small_tokenizer(), config);
  first.add_document(Split::kTrain, document, 5000);
  CorpusWriter second(small_tokenizer(), config);
  expect_error([&] { second.add_document(Split::kTrain, document, 5000); },
               "is being written by another process");
  first.add_document(Split::kTrain, document, 5000);
  const Manifest manifest = first.commit();
  REQUIRE(manifest.shards.size() == 10);
  REQUIRE(manifest.tokens("train") == 10002);
  REQUIRE(verify_corpus(manifest, folder / "out").empty());
  {
    CorpusWriter dropped(small_tokenizer(), {.folder = folder / "new", .shard_tokens = 1024});
    dropped.add_document(Split::kTrain, document, 5000);
  }
  REQUIRE(!fs::exists(folder / "new"));
}

TEST_CASE("a failed prepare leaves no files") {
  const auto fails = [](auto change, const std::string& says) {
    Corpus corpus;
    change(corpus);
    expect_error([&] { prepare(small_tokenizer(), corpus.config); }, says);
    REQUIRE_FALSE(fs::exists(corpus.config.corpus.folder));
  };
  fails([](Corpus& c) { c.config.inputs = {c.folder / "missing"}; }, "missing: No such file");
  fails([](Corpus& c) { c.config.inputs = {c.folder / "in.txt/x"}; }, "Not a directory");
  fails([](Corpus& c) { fs::create_directory(c.config.inputs[0] = c.folder / "empty"); },
        "no text in");
  fails([](Corpus& c) { write_file_plain(c.folder / "in.txt", " \n<|endoftext|>"); },
        "no document in");
  fails([](Corpus& c) { write_file_plain(c.folder / "in.txt", "one"); },
        "no document is left to train on, 1 went");
  fails([](Corpus& c) { c.config.val_every = 1; }, "--val-every 1");
  fails([](Corpus& c) { c.config.val_share = 0; }, "--val-share 0");
  fails([](Corpus& c) { c.config.val_share = 1; }, "--val-share 1");
  fails([](Corpus& c) { c.config.val_share = NAN; }, "--val-share nan");
  fails([](Corpus& c) { c.config.val_share = 1e-9; },
        "no document is held out for validation: 10 documents at --val-share 1e-09");
  fails([](Corpus& c) { c.config.corpus.shard_tokens = 5; }, "shards of 5 tokens");
  for (const char* name : {"", "a/b", "a*b", "a?b", "a[1]", "a b", "a\\b", "\xC3\xA9"}) {
    fails([&](Corpus& c) { c.config.corpus.name = name; }, "a corpus cannot be named");
  }
  const auto jsonl = [&](const std::string& text, const std::string& says) {
    fails(
        [&](Corpus& c) {
          c.config.inputs = {c.folder / "a.jsonl"};
          write_file_plain(c.folder / "a.jsonl", "{\"text\":\"good\"}\n\n" + text);
        },
        says);
  };
  jsonl("{\"text\": \"cut", "a.jsonl line 3 is not JSON");
  jsonl("{\"text\": \"\xFF\"}", "a.jsonl line 3 is not UTF-8: byte 11");
  jsonl("{\"text\": \"see UTF-8", "a.jsonl line 3 is not JSON: byte 20");
  jsonl("{\"text\": \"UTF-8\" \"\xFF\"}", "a.jsonl line 3 is not UTF-8: byte 19");
  jsonl("{\"text\": \xC3\xA9}", "a.jsonl line 3 is not JSON: byte 10");
  jsonl("{\"text\": } \xFF", "a.jsonl line 3 is not JSON: byte 10");  // where it ends
  jsonl("{\"text\": 1e999}", "line 3 is not JSON: a number is too large");
  jsonl("{\"body\": \"x\"}", "line 3 has no field \"text\"");
  jsonl("{\"text\": 3}", "line 3: the field \"text\" is a number, not a string");
  jsonl("{\"text\": null}", "line 3: the field \"text\" is null, not a string");
  jsonl("[1]", "line 3 is a list, not a JSON object");

  Corpus corpus;
  {
    const FileSizeLimit full(1030);
    expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "File too large");
  }
  REQUIRE_FALSE(fs::exists(corpus.config.corpus.folder));
  const std::atomic<bool> stop = true;
  corpus.config.stop = &stop;
  REQUIRE_THROWS_AS(prepare(small_tokenizer(), corpus.config), Interrupted);
  REQUIRE_FALSE(fs::exists(corpus.config.corpus.folder));

  // Folders above it that were not there go too; one that was there stays.
  corpus.config.corpus.folder = corpus.folder / "new/er/out/";
  REQUIRE_THROWS_AS(prepare(small_tokenizer(), corpus.config), Interrupted);
  REQUIRE_FALSE(fs::exists(corpus.folder / "new"));
  fs::create_directories(corpus.folder / "there/empty");
  corpus.config.corpus.folder = corpus.folder / "there/empty";
  REQUIRE_THROWS_AS(prepare(small_tokenizer(), corpus.config), Interrupted);
  REQUIRE(fs::is_empty(corpus.folder / "there/empty"));
  corpus.config.stop = nullptr;
  corpus.config.corpus = {.folder = corpus.folder / "new/out", .name = "Cats-2_v1.0"};
  prepare(small_tokenizer(), corpus.config);
  REQUIRE(fs::exists(corpus.folder / "new/out/Cats-2_v1.0_train_000001.bin"));
}

TEST_CASE("bad lines are skipped and counted on request") {
  Corpus corpus;
  const std::string first =
      "{\"text\": \"good\"}\n[1]\n\n{\"text\": 3}\n{\"text\": \"fine\"}\nno\n";
  write_file_plain(corpus.folder / "a.jsonl", first);
  write_file_plain(corpus.folder / "b.jsonl.zst", zstd("{\"text\": \"last\"}\n{}\n"));
  corpus.config.inputs = {corpus.folder / "a.jsonl", corpus.folder / "b.jsonl.zst"};
  corpus.config.documents.bad_lines = BadLines::kSkip;
  corpus.config.val_every = 0;
  const PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.notes.skipped.lines == 4);
  REQUIRE(result.notes.skipped.first.find("a.jsonl line 2 is a list, not a JSON object") !=
          std::string::npos);
  const std::string out = corpus.config.corpus.folder;
  REQUIRE(decoded(out + "/cats_train_000001.bin", small_tokenizer()) ==
          Texts{"good", "fine", "last"});
  const Manifest manifest = read_manifest(out);
  REQUIRE(manifest.sources.size() == 2);
  REQUIRE(manifest.sources[0].file == corpus.config.inputs[0]);
  REQUIRE(manifest.sources[0].bytes == static_cast<int64_t>(first.size()));
  REQUIRE(manifest.sources[0].documents == 2);
  REQUIRE(manifest.sources[0].bad_lines == 3);
  REQUIRE(manifest.sources[1].documents == 1);
  REQUIRE(manifest.sources[1].bad_lines == 1);
  REQUIRE(manifest.sources[1].sha256 == sha256_file(corpus.config.inputs[1]));
  InputNotes notes;
  train_tokenizer(corpus.config.inputs, corpus.config.documents, 257, 2, notes);
  REQUIRE(notes.skipped.lines == 4);

  // Of which nothing is left.
  corpus.config.documents.field = "body";
  const std::string skipped = "; 7 bad lines were skipped, the first: " + corpus.config.inputs[0] +
                              " line 1 has no field \"body\"";
  corpus.config.corpus.folder = corpus.folder / "new";
  expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "2 files" + skipped);
  InputNotes none;
  expect_error(
      [&] { train_tokenizer(corpus.config.inputs, corpus.config.documents, 257, 2, none); },
      "there is no text to train a tokenizer on" + skipped);
}

TEST_CASE("a manifest lists files of its folder only") {
  Corpus corpus;
  prepare(small_tokenizer(), corpus.config);
  const std::string out = corpus.config.corpus.folder;
  const std::string good = read_file(out + "/manifest.json");
  for (const char* outside : {"../other.bin", "/dev/zero", "..", "below/other.bin", ""}) {
    for (const char* listed : {"cats_train_000001.bin", "tokenizer.json"}) {
      std::string text = good;
      text.replace(text.find(listed), std::string(listed).size(), outside);
      write_file_plain(out + "/manifest.json", text);
      INFO(listed << " is " << outside);
      expect_error([&] { read_manifest(out); }, std::string("'") + outside + "' is no file of");
    }
  }
}

TEST_CASE("verify waits for no pipe and no device") {
  Corpus corpus;
  prepare(small_tokenizer(), corpus.config);
  const std::string out = corpus.config.corpus.folder;
  fs::remove(out + "/cats_train_000001.bin");
  fs::create_symlink("/dev/zero", out + "/cats_train_000001.bin");
  fs::remove(out + "/tokenizer.json");
  REQUIRE(mkfifo((out + "/tokenizer.json").c_str(), 0600) == 0);
  const std::vector<std::string> wrong = verify_corpus(read_manifest(out), out);
  REQUIRE(wrong.size() == 2);
  REQUIRE(wrong[0].find("cats_train_000001.bin: it is a pipe or a device") != std::string::npos);
  REQUIRE(wrong[1].find("is a pipe or a device") != std::string::npos);
  fs::remove(out + "/manifest.json");
  fs::create_symlink("/dev/zero", out + "/manifest.json");
  expect_error([&] { read_manifest(out); }, "is a pipe or a device");
}

TEST_CASE("damaged manifests are refused") {
  Corpus corpus;
  prepare(small_tokenizer(), corpus.config);
  const std::string out = corpus.config.corpus.folder;
  const std::string good = read_file(out + "/manifest.json");
  expect_error([&] { read_manifest(corpus.folder.path()); }, "manifest.json");
  for (const std::string& bad : {std::string(), std::string("{}"), good.substr(0, good.size() / 2),
                                 std::string("{\"format\": \"other\"}")}) {
    write_file_plain(out + "/manifest.json", bad);
    expect_error([&] { read_manifest(out); }, "manifest.json");
  }
  RandomSequence random({.seed = 2});
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    text[random.below(static_cast<uint32_t>(text.size()))] = "{}[]\",:0 x"[random.below(10)];
    write_file_plain(out + "/manifest.json", text);
    try {
      verify_corpus(read_manifest(out), out);
    } catch (const UserError&) {
      ++refused;
    }
  }
  REQUIRE(refused > 30);
}

TEST_CASE("TinyStories give the public shards, and a loader reads them") {
  const std::string text = test_data("text/tinystories_v1_train_first2MiB.txt");
  if (text.empty()) return;
  const TempFolder folder;
  // The public shards omit the first file's last story, which is truncated, and one duplicate.
  const std::string first = read_file(text);
  write_file_plain(folder / "first.txt", first.substr(0, first.rfind("<|endoftext|>")));
  PrepareConfig config{.inputs = {folder / "first.txt",
                                  test_data("text/tinystoriesV2_gpt4_train_first10k_lines.txt")},
                       .corpus = {.folder = folder / "out", .name = "tinystories"},
                       .duplicates = Duplicates::kDrop};
  const Tokenizer tokenizer = read_tokenizer(test_data("gpt2"));
  const PrepareResult result = prepare(tokenizer, config);
  REQUIRE(result.duplicate_documents == 1);
  for (const char* name : {"tinystories_val_000000.bin", "tinystories_train_000001.bin"})
    REQUIRE(read_file(folder / "out/" + name) ==
            read_file(test_data(std::string("shards/") + name)));

  Loader loader({.files = {folder / "out/tinystories_train_000001.bin"},
                 .batch_tokens = 1024,
                 .sequence = 128,
                 .micro_batch = 8,
                 .vocab_size = 50304});
  REQUIRE(loader.epochs(807334 / 1024) == 1);
  loader.next_step();
  REQUIRE(loader.micro(0).token[0] == 50256);
  REQUIRE(loader.micro(0).target[0] == 7454);
}

TEST_CASE("the tokenizer of text files does not depend on threads") {
  const std::string text = test_data("text/tinystoriesV2_gpt4_train_first10k_lines.txt");
  if (text.empty()) return;
  InputNotes notes;
  const Tokenizer one = train_tokenizer({text}, {}, 600, 1, notes);
  REQUIRE(one.vocab_size() == 600);
  REQUIRE(tokenizer_json(train_tokenizer({text}, {}, 600, 3, notes)) == tokenizer_json(one));
  REQUIRE(one.encode("Once upon a time").size() <= 5);
}

}  // namespace
}  // namespace assay::test_prepare
