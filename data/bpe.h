// Byte-level byte-pair encoding. A text is cut into pieces (data/pre_split.h); in each piece,
// starting from single bytes, the adjacent pair whose merge has the lowest rank is joined (leftmost
// first), until no pair has a merge. Every byte string can be encoded and decodes to itself.
// Special tokens are never made from text: "<|endoftext|>" in a document is ordinary text.
//
// Files: data/tokenizer_files.h. Training: data/bpe_train.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/view.h"
#include "data/pre_split.h"

namespace assay {

constexpr std::string_view kEndOfText = "<|endoftext|>";

// GPT-2's id of a byte: the 188 printable bytes come first, in order, then the other 68.
int32_t gpt2_byte_id(uint8_t byte);

// The tables of a tokenizer.
struct Vocabulary {
  std::vector<std::string> bytes;                   // bytes[id]; empty if the id is unused
  std::vector<std::pair<int32_t, int32_t>> merges;  // by rank; the joined bytes are a token too
  std::vector<int32_t> special;                     // ids never made from text, ascending
};

class Tokenizer {
 public:
  // UserError naming the token when a byte has no token, a merge's result is not a token, or two
  // tokens are equal.
  explicit Tokenizer(Vocabulary vocabulary);

  int64_t vocab_size() const { return static_cast<int64_t>(vocabulary_.bytes.size()); }
  // The id of <|endoftext|>; UserError when the tokenizer has none.
  int32_t eot() const;
  bool has_eot() const { return eot_ >= 0; }
  std::vector<int32_t> encode(std::string_view text) const;  // an Encoder for many texts is faster
  // UserError when an id is outside the vocabulary.
  std::string decode(View<const int32_t, 1> tokens) const;
  std::string decode(const std::vector<int32_t>& tokens) const {
    return decode({tokens.data(), {static_cast<int64_t>(tokens.size())}});
  }
  // Bytes of each token, for bits per byte: 0 for special tokens.
  std::vector<int32_t> token_lengths() const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool is_special(int32_t id) const;
  // The ids below vocab_size() that no token has, ascending.
  std::vector<int32_t> unused_ids() const;

 private:
  friend class Encoder;
  struct Merge {
    uint64_t pair = kNoPair;  // left << 32 | right
    int32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  const Merge* find_merge(int32_t left, int32_t right) const;
  void add_merge(uint64_t pair, int32_t rank, int32_t id);

  Vocabulary vocabulary_;
  int32_t byte_id_[256];
  int32_t eot_ = -1;
  std::vector<Merge> merge_table_;  // open addressing, a power of two, at most half full
};

// Encodes texts one after the other and caches the pieces it has seen. Use one per thread; the
// tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  // Appends the tokens of `text`.
  void encode(std::string_view text, std::vector<int32_t>& tokens);

 private:
  // One cache line per piece; a new piece replaces the one in its slot.
  struct Slot {
    static constexpr size_t kBytes = 22;
    static constexpr size_t kTokens = 10;
    uint8_t bytes = 0;
    uint8_t tokens = 0;
    char piece[kBytes];
    int32_t token[kTokens];
  };
  static_assert(sizeof(Slot) == 64);
  struct Symbol {
    int32_t id;
    int32_t length;  // bytes; 0 once joined to its left neighbour
    int32_t previous;
    int32_t next;
  };
  void encode_piece(std::string_view piece, std::vector<int32_t>& tokens);
  void consider(int32_t left);

  const Tokenizer& tokenizer_;
  PreSplit split_;
  std::vector<Slot> cache_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank << 32 | left symbol: lowest rank first, then leftmost
};

}  // namespace assay
