// Text to shards: documents are read in order, encoded on all cores and written in order, so the
// files do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/corpus_writer.h"
#include "data/documents.h"

namespace assay {

enum class Duplicates { kKeep, kDrop };

struct PrepareConfig {
  std::vector<std::string> inputs;
  std::vector<std::string> val_inputs =
      {};  // validation text of its own; then val_share and val_every are not used
  DocumentOptions documents = {};
  CorpusWriter::Config corpus;
  // Share held out by the documents' hashes (data/held_out.h); then val_every is not used.
  std::optional<double> val_share = {};
  int64_t val_every = 20;  // every N-th document, starting with the first, is validation; 0 = none
  Duplicates duplicates = Duplicates::kKeep;
  int threads = 0;                          // 0 = all cores
  const std::atomic<bool>* stop = nullptr;  // set from a signal handler: Interrupted is thrown
};

struct Interrupted : std::exception {};

// Lines of JSONL that were left out (BadLines::kSkip).
struct SkippedLines {
  int64_t lines = 0;
  std::string first;  // what was wrong with it; "" when there is none
};

struct PrepareResult {
  Manifest manifest;
  int64_t empty_documents = 0;
  int64_t duplicate_documents = 0;
  SkippedLines skipped;
  double seconds = 0;
};

// UserError: unreadable or damaged input, no document, nothing for one of the two splits, disk
// full.
PrepareResult prepare(const Tokenizer& tokenizer, const PrepareConfig& config);

// A tokenizer trained on the documents of the inputs, on all cores. `skipped` is added to.
Tokenizer train_tokenizer(const std::vector<std::string>& inputs, const DocumentOptions& options,
                          int64_t vocab_size, int threads, SkippedLines& skipped);

}  // namespace assay
