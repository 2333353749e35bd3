#include <filesystem>
#include <string>
#include <vector>

#include "data/hash_files.h"
#include "data/prepare.h"
#include "engine/config/yaml.h"
#include "session/data_evidence.h"
#include "session/run_data.h"
#include "session/run_evaluators.h"
#include "session/unread_sources.h"
#include "tests/catch.h"
#include "tests/data/cat_corpus.h"
#include "tests/data/expect_error.h"
#include "tests/data/small_corpus.h"

namespace assay::test_run_data {

namespace {

// Corpora of one text: a and b of one tokenizer, c of another.
struct Corpora {
  CatCorpus corpus;

  Corpora() {
    make("a", small_tokenizer());
    make("b", small_tokenizer());
    InputNotes notes;
    make("c", train_tokenizer(corpus.config.inputs, {}, 258, 1, notes));
  }
  void make(const char* folder, const Tokenizer& tokenizer) {
    corpus.config.corpus.folder = corpus.folder / folder;
    prepare(tokenizer, corpus.config);
  }
  // Training and validation data as in a configuration: "a/*_train_*.bin, c/*_train_*.bin".
  Config config(const std::string& train, const std::string& val, const std::string& more) const {
    return parse_config_text("data: {train: [" + train + "], val: [" + val + "]" + more + "}\n",
                             "test", corpus.folder.path());
  }
};

TEST_CASE("shards of two tokenizers are refused where no tokenizer is given") {
  const Corpora made;
  const std::string a = "a/*_train_*.bin", b = "b/*_train_*.bin", c = "c/*_train_*.bin",
                    a_val = "a/*_val_*.bin", b_val = "b/*_val_*.bin", c_val = "c/*_val_*.bin";
  resolve_data(made.config(a + ", " + b, a_val, ", mixture: [1, 1]"));
  evaluation_data(made.config(a, a_val + ", " + b_val, ""));
  const std::string wrong = (made.corpus.folder / "c/manifest.json") +
                            " was written with another tokenizer (258 tokens, SHA-256 ";
  expect_error([&] { resolve_data(made.config(a + ", " + c, a_val, ", mixture: [1, 1]")); }, wrong);
  expect_error([&] { resolve_data(made.config(a, c_val, "")); }, wrong);
  expect_error([&] { evaluation_data(made.config(a, a_val + ", " + c_val, "")); }, wrong);
  const std::string unchecked = ", check_tokenizer: false";
  resolve_data(made.config(a + ", " + c, a_val, unchecked));
  evaluation_data(made.config(a, a_val + ", " + c_val, unchecked));
}

TEST_CASE("shards without a manifest with ids that the tokenizer has not are refused") {
  const Corpora made;
  const std::string large = made.corpus.folder / "large.bin", small = made.corpus.folder / "a.bin";
  const int64_t tokens = small_tokenizer().vocab_size(), rows = tokens + 40;
  std::vector<int32_t> ids = counting(0, 100, tokens);
  write_shard(small, ids, rows);
  ids[30] = int32_t(tokens);  // a row of the model, and no token
  write_shard(large, ids, rows);
  const auto set_up = [&](const char* train, const char* val, const char* more) {
    Config config = made.config(train, val, std::string(", tokenizer: a/tokenizer.json") + more);
    config.model.vocab_size = rows;
    config.run.batch_tokens = 16;
    config.run.sequence = 4;
    config.run.micro_batch = 4;
    return config;
  };
  const auto train_on = [&](const Config& config) {
    Loader(loader_config(config, resolve_data(config)));
  };
  const auto validate_on = [&](const Config& config) {
    RunEvaluators(config, resolve_data(config), "", "cpu");
  };
  const std::string wrong = large + ": token 30 has id " + std::to_string(tokens) +
                            ", the tokenizer has " + std::to_string(tokens) + " tokens: ";
  for (const char* order : {"", ", shuffle: false", ", mixture: [1]"}) {
    train_on(set_up("a.bin", "large.bin", order));
    expect_error([&] { train_on(set_up("large.bin", "a.bin", order)); }, wrong);
  }
  validate_on(set_up("large.bin", "a.bin", ""));
  expect_error([&] { validate_on(set_up("a.bin", "large.bin", "")); }, wrong);
  // A run that began before this was checked goes on so.
  const Config unchecked = set_up("large.bin", "large.bin", ", check_tokenizer: false");
  train_on(unchecked);
  validate_on(unchecked);
  const Config without = made.config("large.bin", "large.bin", "");
  REQUIRE(id_limit(without, resolve_data(without)).ids == without.model.vocab_size);
}

// The data of a configuration, hashed, in sequences of four tokens.
struct Hashed {
  Config config;
  RunData data;

  Hashed(Config from, int64_t eval_tokens) : config(std::move(from)) {
    config.run.sequence = 4;
    config.eval.tokens = eval_tokens;
    data = resolve_data(config);
    std::vector<std::string> files = data.train;
    files.insert(files.end(), data.val.begin(), data.val.end());
    data.hashed = hash_files(files, UseCache::kNo);
  }
  // The warnings that begin so, one per line.
  std::string warnings(const std::string& begin) const {
    std::string found;
    for (const std::string& line : data_warnings(config, data)) {
      if (line.starts_with(begin)) found += line + "\n";
    }
    return found;
  }
};

TEST_CASE("training shards with the bytes of others are named") {
  const Corpora made;
  const std::string a = "a/*_train_*.bin", b = "b/*_train_*.bin", val = "a/*_val_*.bin";
  const auto named = [&](const std::string& train, const std::string& more) {
    return Hashed(made.config(train, val, more), 4)
        .warnings("data.train: " + made.corpus.folder.path());
  };
  REQUIRE(named(a, "").empty());
  const std::string shard = "/cats_train_000001.bin",
                    again = ": a pass reads the same text again, ";
  const std::string as_a = " has the bytes of " + (made.corpus.folder / "a") + shard;
  for (const char* mixture : {"", ", mixture: [1, 1]"}) {
    REQUIRE(named(a + ", " + b, mixture)
                .starts_with("data.train: " + (made.corpus.folder / "b") + shard + as_a + again));
  }
  std::filesystem::create_symlink("a" + shard, made.corpus.folder / "link.bin");
  REQUIRE(named(a + ", " + b + ", link.bin", "").find(as_a + " (and 1 more such file)" + again) !=
          std::string::npos);
}

TEST_CASE("validation data that is not read is named, and how much is read is said") {
  const Corpora made;
  const std::string a = "a/*_train_*.bin", a_val = "a/*_val_*.bin", b_val = "b/*_val_*.bin";
  const Hashed one(made.config(a, a_val, ""), 8);
  const int64_t whole = (Shard(one.data.val[0]).tokens() - 1) / 4;  // sequences
  REQUIRE(whole > 2);
  REQUIRE(validation_text(one.config, one.data) ==
          "validation: the first 8 of " + std::to_string(4 * whole) +
              " tokens, in the order of the files (eval.tokens)");
  REQUIRE(one.warnings("data.val: the validation loss").empty());

  const Hashed all(made.config(a, a_val + ", " + b_val, ""), 8 * whole);
  REQUIRE(validation_text(all.config, all.data).empty());
  REQUIRE(all.warnings("data.val: the validation loss").empty());
  const Hashed some(made.config(a, a_val + ", " + b_val, ""), 8);
  REQUIRE(some.warnings("data.val: the validation loss") ==
          "data.val: the validation loss is of the first 8 tokens in the order of the files "
          "(eval.tokens), which have none of " +
              (made.corpus.folder / "b") + "; eval.tokens=" + std::to_string(4 * (whole + 1)) +
              " reads some of each\n");
  // In a mixture too, where a source's own data is named as the source's.
  const std::string mixed = a + ", b/*_train_*.bin";
  std::filesystem::copy(made.corpus.folder / "b", made.corpus.folder / "other");
  const Hashed source(
      made.config(mixed, a_val + ", " + b_val + ", other/*_val_*.bin", ", mixture: [1, 1]"), 8);
  REQUIRE(source.warnings("data.val: the validation loss")
              .ends_with("which have none of b/*_train_*.bin, " + (made.corpus.folder / "other") +
                         "; the loss of its own: val/b/*_train_*.bin; eval.tokens=" +
                         std::to_string(4 * (2 * whole + 1)) + " reads some of each\n"));
}

TEST_CASE("of many folders whose validation data is not read three are named") {
  const Corpora made;
  std::string val = "a/*_val_*.bin";
  for (const char* copy : {"c1", "c2", "c3", "c4", "c5"}) {
    std::filesystem::copy(made.corpus.folder / "a", made.corpus.folder / copy);
    val += ", " + std::string(copy) + "/*_val_*.bin";
  }
  const Config config = made.config("a/*_train_*.bin", val, "");
  const Hashed first(config, 8);
  const int64_t whole = (Shard(first.data.val[0]).tokens() - 1) / 4;  // sequences of each folder
  const int64_t needed = 4 * (5 * whole + 1);
  const std::string in = made.corpus.folder.path() + "/c";
  REQUIRE(first.warnings("data.val: the validation loss") ==
          "data.val: the validation loss is of the first 8 tokens in the order of the files "
          "(eval.tokens), which have none of " +
              in + "1, " + in + "2, " + in + "3 and 2 more; eval.tokens=" + std::to_string(needed) +
              " reads some of each\n");
  REQUIRE(Hashed(config, needed - 4)
              .warnings("data.val: the validation loss")
              .find("which have none of " + in + "5; eval.tokens=") != std::string::npos);
  REQUIRE(Hashed(config, needed).warnings("data.val: the validation loss").empty());
}

TEST_CASE("many unread sources leave the unread folders their place") {
  UnreadSources unread{.sources = {"a", "b", "c", "d"}, .folders = {"f"}};
  REQUIRE(joined_names(unread) == "a, b, c and 1 more, f");
  unread.folders.clear();
  REQUIRE(joined_names(unread) == "a, b, c and 1 more");
}

TEST_CASE("held-out text without folders of data.val is told, also without a mixture") {
  const Corpora made;
  const Config both =
      made.config("a/*_train_*.bin, b/*_train_*.bin", "a/*_val_*.bin, b/*_val_*.bin", "");
  const RunData data = evaluation_data(both);
  const int64_t whole = (Shard(data.val[0]).tokens() - 1) / 4;
  const UnreadSources unread = unread_sources(data, 8, 4);
  REQUIRE(unread.sources.empty());
  REQUIRE(unread.folders == std::vector<std::string>{made.corpus.folder / "b"});
  REQUIRE(unread.tokens_of_all == 4 * (whole + 1));
  REQUIRE(unread_text(unread, 8).ends_with(", which have none of " + (made.corpus.folder / "b")));
  REQUIRE(unread_sources(data, unread.tokens_of_all, 4).none());
  // Longer than what is read, in one folder: also of two files.
  std::filesystem::copy_file(data.val[0], made.corpus.folder / "a/more_val_000000.bin");
  const RunData one = evaluation_data(made.config("a/*_train_*.bin", "a/*_val_*.bin", ""));
  REQUIRE(one.val.size() == 2);
  REQUIRE(unread_sources(one, 8, 4).none());
}

TEST_CASE(
    "rows that cannot occur are named where the tokenizer is known to be that of the shards") {
  const Corpora made;
  for (const bool checked : {true, false}) {
    const std::string more = std::string(", tokenizer: a/tokenizer.json, check_tokenizer: ");
    Config config =
        made.config("a/*_train_*.bin", "a/*_val_*.bin", more + (checked ? "true" : "false"));
    config.model.vocab_size = 1000;
    REQUIRE(Hashed(config, 8).warnings("model.vocab_size is 1000").empty() == !checked);
  }
}

}  // namespace
}  // namespace assay::test_run_data
