// Training of a byte-level BPE vocabulary: count the pieces of the texts, then join the most
// frequent adjacent pair, again and again. Ties go to the smaller pair of ids, so the result
// depends on the texts alone, not on their order or on threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe.h"

namespace assay {

// How often each piece occurs. One object a thread; merge() adds up.
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

// Ids as GPT-2 lays them out: 256 bytes, then the merges in order, <|endoftext|> last. The
// vocabulary is smaller than asked when no pair occurs twice any more. UserError when vocab_size is
// below 257 or no text was added.
Tokenizer train_bpe(const PieceCounter& pieces, int64_t vocab_size);

}  // namespace assay
