#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/prepare.h"
#include "data/sha256.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/cat_corpus.h"
#include "tests/data/expect_error.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"

namespace assay::test_existing_files {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Corpus = CatCorpus;
using Texts = std::vector<std::string>;

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

TEST_CASE("shards beside manifests of two tokenizers are refused") {
  Corpus corpus;
  const auto shard = [&](const char* folder, const Tokenizer& tokenizer) {
    corpus.config.corpus.folder = corpus.folder / folder;
    prepare(tokenizer, corpus.config);
    return corpus.config.corpus.folder + "/cats_train_000001.bin";
  };
  InputNotes notes;
  const Tokenizer other = train_tokenizer(corpus.config.inputs, {}, 258, 1, notes);
  const std::string a = shard("a", small_tokenizer()), b = shard("b", small_tokenizer()),
                    c = shard("c", other);
  require_one_tokenizer({a, b});
  const auto refused = [&] { require_one_tokenizer({a, b, c}); };
  expect_error(refused,
               (corpus.folder / "c/manifest.json") + " was written with another tokenizer (258 ");
  expect_error(refused, " than " + (corpus.folder / "a/manifest.json") + " (");
  fs::remove(corpus.folder / "c/manifest.json");  // then nothing is known of it
  require_one_tokenizer({a, b, c});
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

}  // namespace
}  // namespace assay::test_existing_files
