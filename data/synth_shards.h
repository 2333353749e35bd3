// The embedded corpus on disk: tokenizer, shards and manifest, as `assay data prepare` would make
// them from a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus_writer.h"

namespace assay {

struct SynthShards {
  int64_t train_tokens = 0;  // about: whole stories
  int64_t val_tokens = 0;    // about
  int64_t vocab_size = 0;    // of the tokenizer trained on the stories; it may end up smaller
  uint64_t seed = 0;
};

struct SynthCorpus {
  std::string folder;
  std::string tokenizer;           // tokenizer.json
  std::vector<std::string> train;  // shards
  std::vector<std::string> val;
};

// Writes the corpus into `folder`. UserError when it cannot, or when `existing` is kRefuse and one
// is there.
SynthCorpus write_synth_corpus(const SynthShards& what, const std::string& folder,
                               Existing existing);

// The corpus from `cache`, built at the first call. The subfolder is named after `what` and the
// grammar; it appears when it is complete, so processes may ask at the same time. One whose files
// are damaged is built again.
SynthCorpus cached_synth_corpus(const SynthShards& what, const std::string& cache);

}  // namespace assay
