// A small tokenizer, and the documents of a shard as text.
#pragma once

#include <string>
#include <vector>

#include "data/bpe_train.h"
#include "tests/data/shard_files.h"

namespace assay {

inline const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = [] {
    PieceCounter pieces;
    pieces.add("one two three four the the cat cat sat sat on on the mat mat");
    return train_bpe(pieces, 280);
  }();
  return tokenizer;
}

// Documents of a shard, decoded.
inline std::vector<std::string> decoded(const std::string& path, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (const int32_t id : read_tokens(path, tokenizer.vocab_size())) {
    if (id == tokenizer.eot()) {
      texts.emplace_back();
    } else {
      texts.back() += tokenizer.decode({id});
    }
  }
  return texts;
}

}  // namespace assay
