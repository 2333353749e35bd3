// Delivers documents in an order drawn from a seed, in bounded memory: `assay data prepare
// --shuffle`.
//
// Each document draws a number from the seed and its position. Its tokens are written to one of 128
// temporary files by the first bits of that number; then the files are read one after the other,
// the documents of each in the order of their numbers. Memory holds 32 MiB of buffers, one document
// and an index of one file (24 bytes per document: 2 MB if there are ten million in all); the disk
// holds 4 bytes per token and 40 per document until the end. The order depends on seed and
// positions alone.
//
// The files are made in the given folder and have no name, so nothing is left of a process that is
// killed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/view.h"
#include "data/corpus_writer.h"

namespace assay {

class DocumentShuffle {
 public:
  // UserError when the folder cannot be written.
  DocumentShuffle(std::string folder, uint64_t seed);
  DocumentShuffle(const DocumentShuffle&) = delete;
  DocumentShuffle& operator=(const DocumentShuffle&) = delete;
  ~DocumentShuffle();

  // As CorpusWriter. UserError when the disk is full.
  void add_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);
  void continue_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);

  int64_t tokens() const { return tokens_; }
  // Hands everything to the writer. on_tokens is called with the tokens written so far.
  void write_to(CorpusWriter& writer, const std::function<void(int64_t)>& on_tokens);

 private:
  struct Bucket {
    int file = -1;
    int64_t bytes = 0;           // written to the file
    std::vector<char> buffered;  // not written yet
  };
  // What precedes the tokens of a document or part in its file.
  struct Header {
    uint64_t number = 0;   // that the document drew
    int64_t document = 0;  // its position
    int64_t tokens = 0;    // of this part
    int64_t text_bytes = 0;
    Split split = Split::kTrain;
    int32_t begins = 0;  // 1: the first part
  };
  void append(const Header& header, View<const int32_t, 1> tokens);
  void put(Bucket& bucket, const void* data, size_t bytes);
  void flush(Bucket& bucket);
  void write_bucket(Bucket& bucket, CorpusWriter& writer,
                    const std::function<void(int64_t)>& on_tokens);
  void get(const Bucket& bucket, int64_t at, void* data, size_t bytes) const;

  std::string folder_;
  uint64_t seed_;
  std::vector<Bucket> buckets_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t written_ = 0;  // tokens handed to the writer
  uint64_t number_ = 0;  // of the document added last
};

}  // namespace assay
