// Checks that data was made with one tokenizer, a model's: token ids mean nothing to another one.
#pragma once

#include <string>
#include <vector>

#include "data/bpe.h"

namespace assay {

// UserError naming both hashes and vocabulary sizes if the tokenizers differ. whose: name of the
// model's tokenizer in the error, e.g. its file.
void require_same_tokenizer(const Tokenizer& model, const std::string& whose, const Tokenizer& data,
                            const std::string& data_file);

// UserError naming two folders if the manifests beside these shards name different tokenizers.
// Shards without a manifest are accepted.
void require_one_tokenizer(const std::vector<std::string>& shards);

// UserError for the first shard whose folder has a manifest that names another tokenizer. Shards
// without a manifest are accepted.
void require_tokenizer_of_shards(const Tokenizer& tokenizer, const std::string& whose,
                                 const std::vector<std::string>& shards);

// The first manifest beside the shards, which names their tokenizer; "" if there is none.
std::string manifest_of(const std::vector<std::string>& shards);

// Throws the UserError for data in the tokens of `data_tokenizer`, where nothing can be compared
// with the model's tokenizer, and why.
[[noreturn]] void refuse_unknown_tokenizer(const std::string& why,
                                           const std::string& data_tokenizer);

}  // namespace assay
