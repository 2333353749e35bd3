// Token shards in the public GPT-2 format: a header of 256 little-endian int32, then the tokens.
//
//   header[0] = 20240520, [1] = 1: tokens are uint16      (vocabularies up to 65,535)
//   header[0] = 20240801, [1] = 7: tokens are uint32
//   header[2] = number of tokens; the file has exactly 1024 + tokens * width bytes
//
// Every document is the EOT id followed by its tokens. Shards are read by pread into the caller's
// buffers: mapped pages would count as memory of the run, and truncating a mapped file would raise
// a signal instead of an error.
//
// After every read the stamp of the open file is compared with that of the bytes that were hashed,
// or of the file as it was opened (one fstat). A file that was replaced by another of its name is
// still read as it was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/view.h"
#include "data/hash_files.h"

namespace assay {

constexpr int64_t kShardHeaderBytes = 1024;

// The ids that a shard may have: those below a number. Whose number it is decides what an error
// says: that of a tokenizer is below that of the model, which has rows for further ids.
struct IdLimit {
  enum class Of { kModel, kTokenizer };
  int64_t ids;
  Of of;
  IdLimit(int64_t number, Of whose = Of::kModel) : ids(number), of(whose) {}
};

class Shard {
 public:
  explicit Shard(
      std::string path);  // UserError: missing, a folder, wrong magic or version, wrong size
  Shard(Shard&& other) noexcept;
  Shard& operator=(Shard&&) = delete;
  ~Shard();

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }
  int token_bytes() const { return token_bytes_; }

  // From here on the shard must have these bytes: UserError if it has others. A new stamp alone,
  // as chmod, ln or mv leave it, has the file hashed again.
  void expect(const HashedFile& hashed);

  // Reads tokens [begin, begin + out.size()), widened to int32. `raw` is scratch of at least
  // out.size() * token_bytes() bytes. UserError when the file cannot be read or has changed,
  // and, naming file, position and id, when an id is not below `limit`. One thread at a time.
  void read(int64_t begin, IdLimit limit, View<int32_t, 1> out, View<std::byte, 1> raw) const;

 private:
  std::string path_;
  int64_t tokens_ = 0;
  int token_bytes_ = 2;
  int file_ = -1;
  mutable FileStamp stamp_;  // with which the bytes are known to be right
  std::string sha256_;       // of the bytes; "" if they were not hashed
  void require_unchanged() const;
};

// Calls f(begin, tokens) for consecutive pieces of the whole shard: scans, histograms, copies.
template <typename F>
void for_each_piece(const Shard& shard, IdLimit limit, F&& f) {
  constexpr int64_t kPiece = 1 << 18;
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kPiece, shard.tokens())));
  std::vector<std::byte> raw(tokens.size() * static_cast<size_t>(shard.token_bytes()));
  const View<std::byte, 1> scratch{raw.data(), {static_cast<int64_t>(raw.size())}};
  for (int64_t at = 0; at < shard.tokens(); at += kPiece) {
    const View<int32_t, 1> piece{tokens.data(), {std::min(kPiece, shard.tokens() - at)}};
    shard.read(at, limit, piece, scratch);
    f(at, View<const int32_t, 1>(piece));
  }
}

// Reads all tokens. UserError when an id is not below `limit`.
void check_tokens(const Shard& shard, IdLimit limit);

// Writes to path.part until commit(), which renames it to `path`.
class ShardWriter {
 public:
  ShardWriter(const std::string& path, int64_t vocab_size);
  void append(View<const int32_t, 1> tokens);
  int64_t tokens() const { return tokens_; }
  const std::string& path() const { return file_.path(); }
  // Writes the header and syncs the part file to the disk, once. Returns its SHA-256.
  std::string seal();
  // Seals the file if necessary, and closes it: it takes no memory and no open file until commit().
  // Another process may then write the part file, unless an open one of the same corpus forbids it.
  void close_part();
  // Seals the file if necessary and gives it its final name. Returns the SHA-256.
  std::string commit();

 private:
  AtomicFile file_;
  int64_t vocab_size_;
  int64_t tokens_ = 0;
  int token_bytes_;
  std::string hash_;  // set by seal()
  std::vector<uint16_t> narrow_;
};

// The files that paths and patterns (*, ?, [a-z]) name, in lexicographic order, each once.
// UserError for a path or pattern that matches nothing.
std::vector<std::string> find_shards(const std::vector<std::string>& patterns);

}  // namespace assay
