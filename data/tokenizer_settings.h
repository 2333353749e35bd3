// Settings of a tokenizer that transformers keeps in files of their own, beside tokenizer.json or
// vocab.json: tokenizer_config.json and added_tokens.json. None of them is applied here, so a
// folder in which they change the ids of a text is refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/bpe.h"

namespace assay {

// file: the tokenizer.json or vocab.json that `tokenizer` was read from. UserError naming the file
// beside it and its setting:
//
//   add_prefix_space      true
//   tokenizer_class       beside vocab.json: not GPT-2's, so text is split by another pattern
//   added_tokens_decoder  and all of added_tokens.json: a token that is not special in the
//                         tokenizer, with the same id; or with a flag of matching_flag()
void refuse_other_settings(const std::string& file, const Tokenizer& tokenizer);

// The first flag of an entry of added tokens by which its token is not found as it is written:
// "lstrip", "rstrip" or "single_word"; "" if none is true.
std::string matching_flag(const nlohmann::json& added);

}  // namespace assay
