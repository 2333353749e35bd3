// Trains a byte-level BPE vocabulary: counts the pieces of the texts, then repeatedly joins the
// most frequent adjacent pair. Ties go to the smaller pair of ids, so the result depends only on
// the texts, not on their order or on threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe.h"

namespace assay {

// Counts how often each piece occurs. Use one per thread; merge() adds them up.
class PieceCounter {
 public:
  void add(std::string_view text);
  void merge(const PieceCounter& other);
  int64_t bytes() const { return bytes_; }

 private:
  friend Tokenizer train_bpe(const PieceCounter&, int64_t);
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  PreSplit split_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> count_;
  int64_t bytes_ = 0;
};

// Ids are laid out as in GPT-2: 256 bytes, then the merges in order, <|endoftext|> last. The
// vocabulary is smaller than vocab_size if no further pair occurs twice. UserError when vocab_size
// is below 257 or above 2^24, or no text was added.
Tokenizer train_bpe(const PieceCounter& pieces, int64_t vocab_size);

}  // namespace assay
