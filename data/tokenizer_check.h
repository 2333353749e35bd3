// Whether data is in the tokens that a model knows: an id means nothing without its tokenizer.
#pragma once

#include <string>
#include <vector>

#include "data/bpe.h"

namespace assay {

// `whose`: "the tokenizer of runs/imported". UserError naming both hashes and vocabularies where
// they differ.
void require_same_tokenizer(const Tokenizer& model, const std::string& whose, const Tokenizer& data,
                            const std::string& data_file);

// UserError for the first shard that lies beside a manifest which names another tokenizer. Shards
// without a manifest say nothing.
void require_tokenizer_of_shards(const Tokenizer& tokenizer, const std::string& whose,
                                 const std::vector<std::string>& shards);

}  // namespace assay
