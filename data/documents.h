// Reads documents from files, one after the other; memory holds about one document at a time.
//
//   text    split at a separator; white space around a document is stripped, as is a byte order
//           mark at the beginning of the file
//   JSONL   *.jsonl, *.ndjson, *.json: one object per line, its text in a field
//   folder  its *.txt, *.text, *.md, *.jsonl, *.ndjson, at any depth, in lexicographic order; what
//           cannot be read in it is left out and counted
//
// A file is read once, the first time that it is named. Text that begins as a binary file of a
// known kind (data/file_kind.h) is refused.
//
// Extensions count in any case: A.JSONL. Files may be compressed: *.txt.gz, *.jsonl.zst
// (data/input_file.h); of a folder *.json.gz and *.json.zst are then read too. Bytes are taken as
// they are: text need not be UTF-8 (JSON must be).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/input_file.h"

namespace assay {

enum class Trim { kStrip, kKeep };
enum class Unfinished { kKeep, kDrop };
enum class BadLines { kRefuse, kSkip };

struct DocumentOptions {
  std::string separator = "<|endoftext|>";  // empty: one document per file
  std::string field = "text";               // of JSONL objects
  Trim trim = Trim::kStrip;
  Unfinished unfinished =
      Unfinished::kKeep;  // what to do with a text file's last document if no separator ends it
  BadLines bad_lines = BadLines::kRefuse;  // what to do with a JSONL line without a text
  size_t part_bytes = size_t{64} << 20;    // see RawDocument
  // A line of JSONL, or text that cannot be cut, is read as a whole: UserError if it is longer. A
  // small compressed file may hold any amount.
  size_t most_bytes = size_t{1} << 30;
};

// White space around a document.
constexpr const char* kDocumentSpace = " \t\n\v\f\r";

// A document as stored in its file. Plain text over part_bytes comes in parts, cut before a space
// where no piece of the tokenizer's pre-split is split. The first part has more than
// kFirstPartBytes after its leading white space, so that what is decided by a document's beginning
// (data/held_out.h) does not depend on the cuts.
constexpr size_t kFirstPartBytes = size_t{1} << 20;
struct RawDocument {
  std::string bytes;
  std::string file;
  size_t file_idx = 0;  // in DocumentReader::files()
  int64_t line = 0;     // line of a JSONL file, from 1; 0 for plain text
  bool begins = true;   // is the document's first part
  bool ends = true;     // is its last part
};

// A JSONL line without a text: not a JSON object, no such field, not a string, or not UTF-8.
struct BadLine : UserError {
  using UserError::UserError;
};

// The text of a document or part: of JSONL the field, else the bytes; without surrounding white
// space unless options.trim is kKeep. Throws BadLine with file and line.
std::string document_text(const RawDocument& document, const DocumentOptions& options);

// What the given folders hold beside the files that are read.
struct LeftOut {
  int64_t other_files = 0;      // of other kinds
  std::set<std::string> kinds;  // their extensions: ".py"
  int64_t unreadable = 0;       // links in a circle or to nothing, no permission, linked folders
  std::string first;            // unreadable one, with the reason; "" if there is none
};

// Files that are read as text, but whose first line is an object with a text: JSONL under another
// name.
struct LikeJsonl {
  int64_t files = 0;
  std::string first;  // "" if there is none
};

// Files that were given again, under whatever name: a file is read once.
struct Repeated {
  int64_t files = 0;
  std::string first;  // "texts/a.md, as texts/a.md"; "" if there is none
};

// Files that have the name of another but for .gz or .zst: often the same text, and both are read.
struct PackedTwins {
  int64_t files = 0;
  std::string first;  // "texts/a.md.gz, beside texts/a.md"; "" if there is none
};

class DocumentReader {
 public:
  // UserError for a path that is missing or unreadable and for a folder without such files.
  DocumentReader(const std::vector<std::string>& paths, DocumentOptions options);

  // Reads the next document or part, which may be empty; false at the end.
  bool next(RawDocument& document);

  const DocumentOptions& options() const { return options_; }
  // Bytes of the files as stored, compressed or not: in all, and read so far.
  int64_t bytes_total() const { return bytes_total_; }
  int64_t bytes_read() const { return bytes_before_ + (file_ ? file_->bytes_read() : 0); }
  const std::vector<std::string>& files() const { return files_; }
  const LeftOut& left_out() const { return left_out_; }
  const Repeated& repeated() const { return repeated_; }
  const PackedTwins& packed_twins() const { return packed_twins_; }
  const LikeJsonl& like_jsonl() const { return like_jsonl_; }  // of the files read so far
  // Of text files: documents that a separator divides from one before them in their file.
  int64_t splits() const { return splits_; }
  // A file that was read to its end.
  struct Read {
    int64_t bytes = 0;
    std::string sha256;
  };
  const std::vector<Read>& read() const { return read_; }  // in the order of files()

 private:
  void drop_repeated();
  void note_packed_twins();
  bool open_next();
  void begin_text();
  void close();
  void fill();
  void look_for_jsonl();
  void count_split(const RawDocument& document);
  void require_bounded() const;
  bool next_text(RawDocument& document);
  bool next_line(RawDocument& document);

  DocumentOptions options_;
  std::vector<std::string> files_;
  LeftOut left_out_;
  Repeated repeated_;
  PackedTwins packed_twins_;
  LikeJsonl like_jsonl_;
  int64_t splits_ = 0;
  bool split_may_follow_ = false;  // the file had a document
  size_t next_file_ = 0;
  std::unique_ptr<InputFile> file_;
  std::vector<Read> read_;
  std::string buffer_;  // bytes read; those from at_ on are not delivered yet
  size_t at_ = 0;
  size_t scanned_ = 0;  // no separator begins before this position
  bool end_of_file_ = false;
  bool looked_ = false;  // at the first line of the file
  bool inside_ = false;  // the document began in an earlier part
  int64_t line_ = 0;
  int64_t bytes_total_ = 0;
  int64_t bytes_before_ = 0;  // read from the files before this one
};

}  // namespace assay
