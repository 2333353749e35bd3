// Documents from files, one after the other, in memory of the size of one document.
//
//   text    split at a separator; white space around a document is stripped
//   JSONL   *.jsonl, *.ndjson: one object a line, its text in a field
//   folder  its *.txt, *.text, *.md, *.jsonl, *.ndjson, at any depth, in lexicographic order
//
// Bytes are taken as they are: text need not be UTF-8 (JSON must be).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace assay {

enum class Trim { kStrip, kKeep };
enum class Unfinished { kKeep, kDrop };

struct DocumentOptions {
  std::string separator = "<|endoftext|>";  // empty: a file is a document
  std::string field = "text";               // of JSONL objects
  Trim trim = Trim::kStrip;
  Unfinished unfinished =
      Unfinished::kKeep;  // the last document of a text file, when no separator ends it
  size_t part_bytes = size_t{64} << 20;  // see RawDocument
};

// A document as it stands in its file. Plain text over part_bytes comes in parts, cut before a space, where
// no piece of the tokenizer's pre-split is torn.
struct RawDocument {
  std::string bytes;
  std::string file;
  int64_t line = 0;  // of JSONL, else 0
  bool begins = true;
  bool ends = true;
};

// The text inside: the JSON field, without surrounding white space. UserError with file and line.
std::string document_text(const RawDocument& document, const DocumentOptions& options);

class DocumentReader {
 public:
  // UserError for a path that is missing or unreadable and for a folder without such files.
  DocumentReader(const std::vector<std::string>& paths, DocumentOptions options);

  // The next document, which may turn out to be empty; false at the end.
  bool next(RawDocument& document);

  int64_t bytes_total() const { return bytes_total_; }
  int64_t bytes_read() const { return bytes_read_; }
  const std::vector<std::string>& files() const { return files_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool open_next();
  void fill();
  bool next_text(RawDocument& document);
  bool next_line(RawDocument& document);

  DocumentOptions options_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
  std::string buffer_;  // read, not yet delivered from at_ on
  size_t at_ = 0;
  size_t scanned_ = 0;  // before here there is no separator
  bool end_of_file_ = false;
  bool inside_ = false;  // the document has begun in an earlier part
  int64_t line_ = 0;
  int64_t bytes_total_ = 0;
  int64_t bytes_read_ = 0;
};

}  // namespace assay
