#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "data/manifest.h"
#include "data/synth.h"
#include "data/synth_shards.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_synth_shards {
namespace {

const SynthShards kSmall{.train_tokens = 20000, .val_tokens = 2000, .vocab_size = 500, .seed = 9};

}  // namespace

TEST_CASE("the synthetic corpus decodes to the generator's stories, each after an EOT") {
  TempFolder temp;
  const SynthCorpus corpus = cached_synth_corpus(kSmall, temp.path());
  const Tokenizer tokenizer = read_tokenizer(corpus.tokenizer);
  REQUIRE(tokenizer.vocab_size() == 500);
  REQUIRE(corpus.train.size() == 1);
  REQUIRE(corpus.val.size() == 1);
  const auto train = read_tokens(corpus.train[0], 500);
  const auto val = read_tokens(corpus.val[0], 500);
  // The last story is the one that passes the token count.
  REQUIRE(train.size() >= 20000);
  REQUIRE(train.size() < 22000);
  REQUIRE(val.size() >= 2000);
  REQUIRE(val.size() < 4000);
  const std::string eot(kEndOfText);
  StoryGenerator first(9), unseen(9, StoryGenerator::kFirstValidation);
  std::string begins = eot + first.next();
  begins += eot + first.next() + eot;
  REQUIRE(tokenizer.decode(train).starts_with(begins));
  REQUIRE(tokenizer.decode(val).starts_with(eot + unseen.next() + eot));
  REQUIRE(verify_corpus(read_manifest(corpus.folder), corpus.folder).empty());
}

TEST_CASE("the cache is reused, keyed by its arguments, and repaired") {
  TempFolder temp;
  const SynthCorpus corpus = cached_synth_corpus(kSmall, temp.path());
  const auto built = std::filesystem::last_write_time(corpus.train[0]);
  REQUIRE(cached_synth_corpus(kSmall, temp.path()).train == corpus.train);
  REQUIRE(std::filesystem::last_write_time(corpus.train[0]) == built);

  SynthShards other = kSmall;
  other.seed = 10;
  REQUIRE(cached_synth_corpus(other, temp.path()).folder != corpus.folder);

  const std::string good = read_file(corpus.train[0]);
  std::string bad = good;
  bad[5000] = static_cast<char>(bad[5000] ^ 1);
  std::ofstream(corpus.train[0], std::ios::binary) << bad;
  cached_synth_corpus(kSmall, temp.path());
  REQUIRE(read_file(corpus.train[0]) == good);

  for (const char* damaged : {"", "{", "{\"format\": 3}"}) {
    std::ofstream(corpus.folder + "/manifest.json", std::ios::binary) << damaged;
    REQUIRE(cached_synth_corpus(kSmall, temp.path()).train == corpus.train);
    REQUIRE(read_file(corpus.train[0]) == good);
  }

  // No partly built folder is left.
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path()))
    folders += entry.is_directory();
  REQUIRE(folders == 2);
}

TEST_CASE("a corpus that is not in the cache, or damaged there, is not built to look for it") {
  TempFolder temp;
  REQUIRE(!synth_corpus_there(kSmall, temp / "none"));
  REQUIRE(!synth_corpus_there(kSmall, temp.path()));
  REQUIRE(std::filesystem::is_empty(temp.path()));
  const SynthCorpus corpus = cached_synth_corpus(kSmall, temp.path());
  const auto there = synth_corpus_there(kSmall, temp.path());
  REQUIRE(there.has_value());
  REQUIRE(there->tokenizer == corpus.tokenizer);
  std::filesystem::remove(corpus.val[0]);
  REQUIRE(!synth_corpus_there(kSmall, temp.path()));
}

TEST_CASE("the tokenizer of a corpus is known before there is one") {
  TempFolder temp;
  const Tokenizer before = synth_tokenizer(kSmall);
  const SynthCorpus corpus = cached_synth_corpus(kSmall, temp.path());
  REQUIRE(tokenizer_hash(before) == tokenizer_hash(read_tokenizer(corpus.tokenizer)));
}

TEST_CASE("a corpus does not overwrite another") {
  TempFolder temp;
  const std::string folder = temp.path() + "/corpus";
  write_synth_corpus(kSmall, folder, Existing::kRefuse);
  expect_error([&] { write_synth_corpus(kSmall, folder, Existing::kRefuse); }, folder);
}

}  // namespace assay::test_synth_shards
