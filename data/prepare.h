// Turns text into shards: documents are read in order, encoded on all cores and written in order,
// so the files do not depend on the number of threads.
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
      {};  // separate validation text; if given, val_share and val_every are not used
  DocumentOptions documents = {};
  CorpusWriter::Config corpus;
  // Share held out by the documents' hashes (data/held_out.h); if given, val_every is not used.
  std::optional<double> val_share = {};
  int64_t val_every = 20;  // every N-th document, starting with the first, is validation; 0 = none
  Duplicates duplicates = Duplicates::kKeep;
  int threads = 0;                          // 0 = all cores
  const std::atomic<bool>* stop = nullptr;  // when a signal handler sets it, Interrupted is thrown
};

struct Interrupted : std::exception {};

// Lines of JSONL that were skipped (BadLines::kSkip).
struct SkippedLines {
  int64_t lines = 0;
  std::string first;  // what was wrong with the first one; "" if there is none
};

struct PrepareResult {
  Manifest manifest;
  int64_t empty_documents = 0;
  int64_t duplicate_documents = 0;
  SkippedLines skipped;
  double seconds = 0;
};

// Writes the corpus. UserError: unreadable or damaged input, no document, no document for training
// or, with val_share, for validation, disk full.
PrepareResult prepare(const Tokenizer& tokenizer, const PrepareConfig& config);

// Trains a tokenizer on the documents of the inputs, on `threads` threads (0 = all cores). Adds
// skipped lines to `skipped`.
Tokenizer train_tokenizer(const std::vector<std::string>& inputs, const DocumentOptions& options,
                          int64_t vocab_size, int threads, SkippedLines& skipped);

}  // namespace assay
