#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "data/prepare.h"
#include "data/sha256.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"
#include "tests/data/temp_folder.h"

namespace assay::test_document_shuffle {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

struct Corpus {
  TempFolder folder;
  PrepareConfig config;
  explicit Corpus(int documents = 400) {
    std::string text;
    for (int i = 0; i < documents; ++i)
      text +=
          "the cat " + std::to_string(i) + " sat<|endoftext|>" + (i % 10 ? "" : "dog<|endoftext|>");
    write_file_plain(folder / "in.txt", text);
    config.inputs = {folder / "in.txt"};
    config.val_every = 8;
    config.threads = 2;
  }
  // Prepares into a folder of that name, which it returns.
  std::string prepared(const std::string& name, std::optional<uint64_t> seed, int threads = 2) {
    config.corpus = {.folder = folder / name, .shard_tokens = 2000};
    config.shuffle_seed = seed;
    config.threads = threads;
    prepare(small_tokenizer(), config);
    return folder / name;
  }
};

// The documents of a split; one may continue in the next shard.
Texts documents_of(const std::string& folder, const std::string& split) {
  std::string text;
  const Manifest manifest = read_manifest(folder);
  for (const ShardEntry& shard : manifest.shards)
    if (shard.split == split)
      for (const int32_t id : read_tokens(folder + "/" + shard.file, 280))
        text += id == small_tokenizer().eot() ? "\n" : small_tokenizer().decode({id});
  Texts texts;
  for (size_t at = 1; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    texts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return texts;
}

std::string bytes_of(const std::string& folder) {
  std::string all;
  for (const ShardEntry& shard : read_manifest(folder).shards) all += shard.sha256 + "\n";
  return all;
}

Texts sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST_CASE("a shuffled corpus has the same documents in another order") {
  Corpus corpus;
  const std::string plain = corpus.prepared("plain", std::nullopt);
  const std::string one = corpus.prepared("one", 1);
  REQUIRE(bytes_of(corpus.prepared("again", 1, 5)) == bytes_of(one));
  REQUIRE(bytes_of(corpus.prepared("single", 1, 1)) == bytes_of(one));
  const std::string two = corpus.prepared("two", 2);
  for (const char* split : {"train", "val"}) {
    const Texts before = documents_of(plain, split), first = documents_of(one, split);
    REQUIRE(sorted(before) == sorted(first));
    REQUIRE(sorted(before) == sorted(documents_of(two, split)));
    REQUIRE(before != first);
    REQUIRE(first != documents_of(two, split));
    size_t in_place = 0;
    for (size_t i = 0; i < before.size(); ++i) in_place += before[i] == first[i];
    REQUIRE(in_place < before.size() / 10);
  }
  REQUIRE(read_manifest(one).shuffle_seed == 1u);
  REQUIRE(!read_manifest(plain).shuffle_seed);
  REQUIRE(read_manifest(one).text_bytes == read_manifest(plain).text_bytes);
  // The order is fixed: a new program version must not change it.
  REQUIRE(sha256_hex(bytes_of(one)).substr(0, 16) == "9c9ed8b5bbea5a2b");
}

TEST_CASE("documents in parts stay whole, and duplicates are dropped as without a shuffle") {
  Corpus corpus(0);
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += "begin" + std::to_string(i);
    for (int j = 0; j < 400'000; ++j) text += " mat" + std::to_string(j % 7);
    text += "<|endoftext|>small" + std::to_string(i) + "<|endoftext|>the cat<|endoftext|>";
  }
  write_file_plain(corpus.folder / "in.txt", text);
  corpus.config.documents.part_bytes = 200'000;
  corpus.config.duplicates = Duplicates::kDrop;
  corpus.config.val_every = 0;
  const Texts plain = documents_of(corpus.prepared("plain", std::nullopt), "train");
  const Texts shuffled = documents_of(corpus.prepared("shuffled", 4), "train");
  REQUIRE(plain.size() == 7);
  REQUIRE(shuffled != plain);
  REQUIRE(sorted(shuffled) == sorted(plain));
}

TEST_CASE("a shuffle leaves no temporary files, also when the disk is full") {
  Corpus corpus;
  const std::string made = corpus.prepared("made", 3);
  for (const auto& entry : fs::directory_iterator(made))
    REQUIRE(!entry.path().filename().string().starts_with("."));
  corpus.config.corpus = {.folder = corpus.folder / "full"};
  {
    const FileSizeLimit limit(200);
    expect_error([&] { prepare(small_tokenizer(), corpus.config); }, "File too large");
  }
  REQUIRE_FALSE(fs::exists(corpus.folder / "full"));
}

}  // namespace
}  // namespace assay::test_document_shuffle
