// Writes the embedded corpus: tokenizer, shards and manifest, as `assay data prepare` does for
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus_writer.h"

namespace assay {

struct SynthShards {
  int64_t train_tokens = 0;  // at least this many, in whole stories
  int64_t val_tokens = 0;    // likewise
  int64_t vocab_size = 0;    // of the tokenizer trained on the stories, which may end up smaller
  uint64_t seed = 0;
};

struct SynthCorpus {
  std::string folder;
  std::string tokenizer;           // tokenizer.json
  std::vector<std::string> train;  // shards
  std::vector<std::string> val;
};

// The tokenizer that the corpus has, trained on its stories; nothing is written.
Tokenizer synth_tokenizer(const SynthShards& what);

// Writes the corpus into `folder`. UserError when it cannot be written, or when `existing` is
// kRefuse and the folder has a corpus.
SynthCorpus write_synth_corpus(const SynthShards& what, const std::string& folder,
                               Existing existing);

// The corpus from a subfolder of `cache`, built if it is missing or damaged. The subfolder's name
// is a hash of `what` and the grammar; it appears only when complete, so several processes may call
// this at the same time.
SynthCorpus cached_synth_corpus(const SynthShards& what, const std::string& cache);
// The same, if it is there: nothing is built.
std::optional<SynthCorpus> synth_corpus_there(const SynthShards& what, const std::string& cache);

}  // namespace assay
