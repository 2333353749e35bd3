// Section data: shards, tokenizer, the embedded corpus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/field_check.h"

namespace assay {

struct SynthConfig {
  int64_t train_tokens = 8000000;
  int64_t val_tokens = 200000;
  int64_t vocab_size = 4096;
  int64_t seed = 1;
};

template <typename V>
void visit(V& v, SynthConfig& c) {
  v("train_tokens", c.train_tokens, "approximate tokens of the generated training stories",
    at_least(1000));
  v("val_tokens", c.val_tokens, "approximate tokens of the generated validation stories",
    at_least(1000));
  v("vocab_size", c.vocab_size, "vocabulary of the tokenizer trained on them", at_least(257));
  v("seed", c.seed, "seed of the generator", not_negative());
}

struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> val;
  std::optional<std::vector<double>> mixture = {};
  bool shuffle = true;
  double max_epochs = 0;
  std::string reference = "any";
  std::string tokenizer;
  bool check_tokenizer = true;
  std::string cache = "data-cache";
  bool mask_eos = false;
  std::optional<SynthConfig> synth;
};

template <typename V>
void visit(V& v, DataConfig& c) {
  v("train", c.train, "training shards: files or patterns, in lexicographic order", path());
  v("val", c.val, "validation shards", path());
  v("mixture", c.mixture,
    "sampling weights of the entries of train, which become sources of sequences; absent = all "
    "shards are one source",
    positive());
  v("shuffle", c.shuffle,
    "shuffle the training sequences in every epoch, by run.seed; false = in the order of the "
    "shards",
    any());
  v("max_epochs", c.max_epochs,
    "most passes over the training data, of a mixture over each source; a run that needs more is "
    "refused; 0 = any number",
    free_on_resume(not_negative()));
  v("reference", c.reference,
    "validation data that run.target_loss and published losses belong to: the name in the "
    "reference.json beside data.val, or the SHA-256 of its shard; other data is refused; any = no "
    "check",
    free_on_resume(any()));
  v("tokenizer", c.tokenizer,
    "tokenizer of the shards, a file or its folder; needed for bits per byte", path());
  v("check_tokenizer", c.check_tokenizer,
    "refuse shards whose manifest names another tokenizer than the model's", free_on_resume(any()));
  v("cache", c.cache, "folder for the files that synth builds", free_on_resume(path()));
  v("mask_eos", c.mask_eos, "exclude targets equal to the EOT id from the loss", any());
  v.section("synth", c.synth, "build the embedded corpus instead of reading files");
}

}  // namespace assay
