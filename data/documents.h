// Documents from files, one after the other, in memory of the size of one document.
//
//   text    split at a separator; white space around a document is stripped
//   JSONL   *.jsonl, *.ndjson, *.json: one object a line, its text in a field
//   folder  its *.txt, *.text, *.md, *.jsonl, *.ndjson, at any depth, in lexicographic order
//
// Each of them may be compressed: *.txt.gz, *.jsonl.zst (data/input_file.h); folders then also give
// *.json.gz and *.json.zst. Bytes are taken as they are: text need not be UTF-8 (JSON must be).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/input_file.h"

namespace assay {

enum class Trim { kStrip, kKeep };
enum class Unfinished { kKeep, kDrop };
enum class BadLines { kRefuse, kSkip };

struct DocumentOptions {
  std::string separator = "<|endoftext|>";  // empty: a file is a document
  std::string field = "text";               // of JSONL objects
  Trim trim = Trim::kStrip;
  Unfinished unfinished =
      Unfinished::kKeep;  // the last document of a text file, when no separator ends it
  BadLines bad_lines = BadLines::kRefuse;  // what to do with a line of JSONL that has no text
  size_t part_bytes = size_t{64} << 20;    // see RawDocument
};

// White space around a document.
constexpr const char* kDocumentSpace = " \t\n\v\f\r";

// A document as it stands in its file. Plain text over part_bytes comes in parts, cut before a
// space, where no piece of the tokenizer's pre-split is torn. The first part has more than
// kFirstPartBytes after the white space it begins with: what is decided by a document's beginning
// is decided the same wherever it is cut.
constexpr size_t kFirstPartBytes = size_t{1} << 20;
struct RawDocument {
  std::string bytes;
  std::string file;
  size_t file_idx = 0;  // of DocumentReader::files()
  int64_t line = 0;     // of JSONL, else 0
  bool begins = true;
  bool ends = true;
};

// A line of JSONL without a text: no JSON object, no such field, no string in it, or not UTF-8.
struct BadLine : UserError {
  using UserError::UserError;
};

// The text inside: the JSON field, without surrounding white space. BadLine with file and line.
std::string document_text(const RawDocument& document, const DocumentOptions& options);

class DocumentReader {
 public:
  // UserError for a path that is missing or unreadable and for a folder without such files.
  DocumentReader(const std::vector<std::string>& paths, DocumentOptions options);

  // The next document, which may turn out to be empty; false at the end.
  bool next(RawDocument& document);

  const DocumentOptions& options() const { return options_; }
  // Of the files as they are stored: how far the reading is, packed or not.
  int64_t bytes_total() const { return bytes_total_; }
  int64_t bytes_read() const { return bytes_before_ + (file_ ? file_->bytes_read() : 0); }
  const std::vector<std::string>& files() const { return files_; }
  // Of the files read to their end, in order.
  struct Read {
    int64_t bytes = 0;
    std::string sha256;
  };
  const std::vector<Read>& read() const { return read_; }

 private:
  bool open_next();
  void close();
  void fill();
  bool next_text(RawDocument& document);
  bool next_line(RawDocument& document);

  DocumentOptions options_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<InputFile> file_;
  std::vector<Read> read_;
  std::string buffer_;  // read, not yet delivered from at_ on
  size_t at_ = 0;
  size_t scanned_ = 0;  // before here there is no separator
  bool end_of_file_ = false;
  bool inside_ = false;  // the document has begun in an earlier part
  int64_t line_ = 0;
  int64_t bytes_total_ = 0;
  int64_t bytes_before_ = 0;  // of the files before this one
};

}  // namespace assay
