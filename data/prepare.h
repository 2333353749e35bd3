// Turns text into shards: documents are read in order, encoded on all cores and written in order,
// or in an order drawn from a seed (data/document_shuffle.h), so the files do not depend on the
// number of threads.
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
  std::optional<uint64_t> shuffle_seed = {};  // the documents' order is drawn from it
  int threads = 0;                            // 0 = all usable cores
  const std::atomic<bool>* stop = nullptr;  // when a signal handler sets it, Interrupted is thrown
};

struct Interrupted : std::exception {};

// Lines of JSONL that were skipped (BadLines::kSkip).
struct SkippedLines {
  int64_t lines = 0;
  std::string first;  // what was wrong with the first one; "" if there is none
};

// What was read of the given files and folders, and what was noticed in it.
struct InputNotes {
  int64_t files = 0;
  LeftOut left_out;
  SkippedLines skipped;
  int64_t not_utf8 = 0;        // documents
  std::string first_not_utf8;  // "utf16.txt, document 1, byte 0"; "" if there is none
  int64_t nul = 0;             // documents of text files with a NUL byte
  std::string first_nul;       // as first_not_utf8
  // Of val_inputs: documents, and how many of them are documents of inputs too. Those in parts
  // (RawDocument) are not compared.
  int64_t val_documents = 0, trained_val_documents = 0;
  // Documents in parts, which Duplicates::kDrop does not compare.
  int64_t too_long = 0;
  std::string first_too_long;  // its file; "" if there is none
  // Files of val_inputs with the bytes of one of inputs, of which documents are in both splits.
  int64_t trained_val_files = 0;
  std::string first_trained_val;  // "texts/a.md, as texts/a.md"; "" if there is none
  LikeJsonl like_jsonl;
  Repeated repeated;         // within inputs, or within val_inputs
  PackedTwins packed_twins;  // the same
  int64_t splits = 0;        // DocumentReader::splits()
};

struct PrepareResult {
  Manifest manifest;
  int64_t empty_documents = 0;
  int64_t duplicate_documents = 0;
  InputNotes notes;
  double seconds = 0;
};

// Writes the corpus. UserError: unreadable or damaged input, no document, no document for training
// or, with val_share, for validation, disk full.
PrepareResult prepare(const Tokenizer& tokenizer, const PrepareConfig& config);

// Trains a tokenizer on the documents of the inputs, on `threads` threads (0 = all usable cores).
// Adds to `notes`.
Tokenizer train_tokenizer(const std::vector<std::string>& inputs, const DocumentOptions& options,
                          int64_t vocab_size, int threads, InputNotes& notes);

}  // namespace assay
