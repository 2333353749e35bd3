#include <filesystem>
#include <string>

#include "data/prepare.h"
#include "engine/config/yaml.h"
#include "session/run_data.h"
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

}  // namespace
}  // namespace assay::test_run_data
