#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/random.h"
#include "data/held_out.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/sha256.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
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
using nlohmann::json;

std::vector<std::string> documents(const std::vector<std::string>& paths,
                                   const DocumentOptions& options = {}) {
  DocumentReader reader(paths, options);
  std::vector<std::string> texts;
  for (RawDocument raw; reader.next(raw);) texts.push_back(document_text(raw, options));
  return texts;
}

using Texts = std::vector<std::string>;

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

struct Corpus {
  TempFolder folder;
  PrepareConfig config;
  Corpus() {
    std::string text;
    for (int i = 0; i < 10; ++i) text += "the cat " + std::to_string(i) + "\n<|endoftext|>\n";
    write_file_plain(folder / "in.txt", text);
    config.inputs = {folder / "in.txt"};
    config.corpus = {.folder = folder / "out", .name = "cats"};
    config.val_every = 4;
    config.threads = 2;
  }
};

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

TEST_CASE("a replaced corpus leaves no shard of the old one") {
  Corpus corpus;
  prepare(small_tokenizer(), corpus.config);
  corpus.config.val_every = 0;
  corpus.config.corpus.existing = Existing::kReplace;
  prepare(small_tokenizer(), corpus.config);
  REQUIRE(!fs::exists(corpus.config.corpus.folder + "/cats_val_000000.bin"));
  REQUIRE(
      decoded(corpus.config.corpus.folder + "/cats_train_000001.bin", small_tokenizer()).size() ==
      10);
}

TEST_CASE("shards and tokenizers that are there are not replaced unasked") {
  Corpus corpus;
  const std::string out = corpus.config.corpus.folder;
  make_folders(out);
  write_tokenizer_json(small_tokenizer(), out + "/tokenizer.json");
  prepare(small_tokenizer(), corpus.config);  // with the same tokenizer
  fs::remove(out + "/manifest.json");
  const std::string before = sha256_file(out + "/cats_train_000001.bin");
  expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "already holds shards, cats_");
  corpus.config.corpus.name = "dogs";
  prepare(small_tokenizer(), corpus.config);
  fs::remove(out + "/manifest.json");
  InputNotes notes;
  const Tokenizer other = train_tokenizer(corpus.config.inputs, {}, 258, 1, notes);
  corpus.config.corpus.name = "birds";
  expect_error([&] { prepare(other, corpus.config); }, "already holds another tokenizer.json");
  REQUIRE(sha256_file(out + "/cats_train_000001.bin") == before);
}

TEST_CASE("an equal tokenizer of another program keeps its bytes") {
  Corpus corpus;
  const std::string out = corpus.config.corpus.folder, file = out + "/tokenizer.json";
  make_folders(out);
  json theirs = json::parse(tokenizer_json(small_tokenizer()));
  theirs["truncation"] = {{"max_length", 512}};
  write_file_plain(file, theirs.dump(4));
  for (const Existing existing : {Existing::kRefuse, Existing::kReplace}) {
    corpus.config.corpus.existing = existing;
    const Manifest manifest = prepare(small_tokenizer(), corpus.config).manifest;
    REQUIRE(read_file(file) == theirs.dump(4));
    REQUIRE(verify_corpus(manifest, out).empty());
  }
  InputNotes notes;
  write_tokenizer_json(train_tokenizer(corpus.config.inputs, {}, 258, 1, notes), file);
  REQUIRE(verify_corpus(read_manifest(out), out).size() == 1);
}

TEST_CASE("another program's manifest.json is neither read nor replaced") {
  Corpus corpus;
  const std::string out = corpus.config.corpus.folder, shard = out + "/cats_train_000001.bin";
  prepare(small_tokenizer(), corpus.config);
  InputNotes notes;
  const Tokenizer other = train_tokenizer(corpus.config.inputs, {}, 258, 1, notes);
  for (const char* theirs :
       {"{\"packages\": []}", "{\"format\": 3}", "{\"format\": \"tar\"}", "[1]"}) {
    write_file_plain(out + "/manifest.json", theirs);
    require_manifest_hashes(hash_files({shard}, UseCache::kNo));
    require_tokenizer_of_shards(other, "the model", {shard});
    expect_error([&] { read_manifest(out); }, "is not the manifest of a corpus");
    for (const Existing existing : {Existing::kRefuse, Existing::kReplace}) {
      corpus.config.corpus.existing = existing;
      expect_error([&] { prepare(small_tokenizer(), corpus.config); },
                   "manifest.json is of another program");
    }
    REQUIRE(read_file(out + "/manifest.json") == theirs);
  }
  // Another version of ours, or what may be ours and was cut short.
  for (const char* ours : {"{\"format\": \"assay-corpus-9\"}", "{\"format\": \"assay-cor", ""}) {
    write_file_plain(out + "/manifest.json", ours);
    REQUIRE(has_manifest(out));
    expect_error([&] { require_tokenizer_of_shards(other, "the model", {shard}); },
                 "manifest.json");
  }
}

TEST_CASE("a command that was killed while it named its shards can be given again") {
  Corpus corpus;
  prepare(small_tokenizer(), corpus.config);
  const std::string manifest = corpus.config.corpus.folder + "/manifest.json",
                    text = read_file(manifest);
  std::filesystem::rename(manifest, manifest + ".part");
  prepare(small_tokenizer(), corpus.config);
  REQUIRE(read_file(manifest) == text);
  // A shard that the killed command did not write is not replaced.
  std::filesystem::rename(manifest, manifest + ".part");
  write_file_atomic(corpus.config.corpus.folder + "/cats_train_000009.bin", "mine");
  expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "already holds shards, cats_");
}

TEST_CASE("shards whose manifest was lost do not stay beside those that replace them") {
  Corpus corpus;
  const std::string out = corpus.config.corpus.folder;
  prepare(small_tokenizer(), corpus.config);
  fs::remove(out + "/manifest.json");  // as a kill between removing and writing it leaves it
  fs::copy_file(out + "/cats_train_000001.bin", out + "/cats_train_000002.bin");
  write_file_plain(out + "/cats_val_small.bin", "not ours");
  corpus.config.corpus.existing = Existing::kReplace;
  const Manifest manifest = prepare(small_tokenizer(), corpus.config).manifest;
  REQUIRE(!fs::exists(out + "/cats_train_000002.bin"));
  REQUIRE(fs::exists(out + "/cats_val_small.bin"));
  REQUIRE(verify_corpus(manifest, out).empty());
  REQUIRE(unlisted_shards(manifest, out) == Texts{"cats_val_small.bin"});
}

TEST_CASE("separate validation text, and duplicates") {
  Corpus corpus;
  write_file_plain(corpus.folder / "val.txt", "on the mat");
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b<|endoftext|> a<|endoftext|>c");
  corpus.config.val_inputs = {corpus.folder / "val.txt"};
  corpus.config.duplicates = Duplicates::kDrop;
  const PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.duplicate_documents == 1);
  const std::string out = corpus.config.corpus.folder;
  REQUIRE(decoded(out + "/cats_val_000000.bin", small_tokenizer()) == Texts{"on the mat"});
  REQUIRE(decoded(out + "/cats_train_000001.bin", small_tokenizer()) == Texts{"a", "b", "c"});
}

TEST_CASE("a validation file that is trained on too is named") {
  Corpus corpus;
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b");
  write_file_plain(corpus.folder / "copy.txt", "a<|endoftext|>b");
  write_file_plain(corpus.folder / "val.txt", "on the mat");
  corpus.config.val_inputs = {corpus.folder / "val.txt"};
  corpus.config.corpus.existing = Existing::kReplace;
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_files == 0);
  corpus.config.val_inputs.push_back(corpus.folder / "copy.txt");
  const InputNotes notes = prepare(small_tokenizer(), corpus.config).notes;
  REQUIRE(notes.trained_val_files == 1);
  REQUIRE(notes.first_trained_val ==
          (corpus.folder / "copy.txt") + ", as " + (corpus.folder / "in.txt"));
  corpus.config.duplicates = Duplicates::kDrop;  // then the copies are not validated on
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_files == 0);
}

// The documents held out at `share` when the files are prepared.
std::set<std::string> held_out(const std::vector<std::string>& inputs, const TempFolder& folder,
                               double share) {
  const Manifest manifest =
      prepare(small_tokenizer(),
              {.inputs = inputs,
               .corpus = {.folder = folder / "out", .name = "hash", .existing = Existing::kReplace},
               .val_share = share,
               .threads = 2})
          .manifest;
  const Texts val = decoded(folder / "out/hash_val_000000.bin", small_tokenizer());
  const Texts train = decoded(folder / "out/hash_train_000001.bin", small_tokenizer());
  const std::set<std::string> out(val.begin(), val.end());
  for (const std::string& text : train) REQUIRE(out.count(text) == 0);
  REQUIRE(manifest.documents("val") == static_cast<int64_t>(val.size()));
  REQUIRE(manifest.validation == strprintf("share %g by hash", share));
  return out;
}

TEST_CASE("documents are held out by content, not by position") {
  const TempFolder folder;
  std::string text, backwards, doubled, cut[2];
  for (int i = 0; i < 3000; ++i) {
    const std::string story = "the cat " + std::to_string(i);
    text += story + "<|endoftext|>";
    backwards = json({{"text", "\n " + story + "\t"}}).dump() + "\n" + backwards;
    doubled += story + "<|endoftext|>\n" + story + "<|endoftext|>";
    cut[i % 7 == 0] += story + "\n\n<|endoftext|>\n";
  }
  write_file_plain(folder / "a.txt", text);
  write_file_plain(folder / "b.jsonl.gz", gzip(backwards));
  write_file_plain(folder / "c.txt", doubled);
  write_file_plain(folder / "d.txt", cut[0]);
  write_file_plain(folder / "e.txt", cut[1]);
  const std::set<std::string> tenth = held_out({folder / "a.txt"}, folder, 0.1);
  REQUIRE(tenth.size() > 240);
  REQUIRE(tenth.size() < 360);
  REQUIRE(held_out({folder / "b.jsonl.gz"}, folder, 0.1) == tenth);
  REQUIRE(held_out({folder / "c.txt"}, folder, 0.1) == tenth);
  REQUIRE(held_out({folder / "e.txt", folder / "d.txt"}, folder, 0.1) == tenth);
  for (const std::string& story : held_out({folder / "a.txt"}, folder, 0.02))
    REQUIRE(tenth.count(story) == 1);
  // The rule, checked with `printf "the cat" | sha256sum`, so that other programs can compute which
  // side a document is on.
  REQUIRE(document_number("\n the cat\t") ==
          static_cast<double>(0x70a48cc5ea382e9bull >> 11) * 0x1p-53);
}

TEST_CASE("a document is on one side whatever its length and wherever its parts are cut") {
  const TempFolder folder;
  RandomSequence random({.seed = 9});
  int held = 0;
  for (int round = 0; round < 12; ++round) {
    std::string text = std::string(random.below(5000), ' ') + std::to_string(round);
    while (text.size() < (3 << 20)) text += random.below(9) ? " the cat" : "\n 12";
    // A stretch without text to cut in.
    if (round % 3 == 0) text.insert(10000, std::string(2 << 20, '\n'));
    std::set<bool> sides;
    for (const size_t before : {0u, 1000u, 700'000u}) {
      write_file_plain(folder / "a.txt", std::string(before, 'x') + "<|endoftext|>" + text);
      for (const size_t part_bytes : {size_t{1} << 20, size_t{2} << 20, size_t{64} << 20}) {
        DocumentReader reader({folder / "a.txt"}, {.part_bytes = part_bytes});
        RawDocument raw;
        REQUIRE(reader.next(raw));
        REQUIRE(reader.next(raw));
        REQUIRE(raw.begins);
        REQUIRE(raw.ends == (part_bytes > text.size()));
        sides.insert(document_number(document_text(raw, {})) < 0.5);
      }
    }
    REQUIRE(sides.size() == 1);
    held += *sides.begin();
  }
  REQUIRE(held > 0);
  REQUIRE(held < 12);
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
