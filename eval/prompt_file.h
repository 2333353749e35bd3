// Reads prompts from a file, one per line; in a file whose name ends in .jsonl, each line is a JSON
// object with "prompt". Encodes them as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.h"

namespace assay {

// Without empty lines, and without the byte order mark that some editors write. UserError with file
// and line if a prompt cannot be read, and for a file without prompts.
std::vector<std::string> read_prompts(const std::string& path);

// The same from a file's contents; `name` is for messages.
enum class PromptLines { kText, kJson };
std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name);

// The same of text that has no file name: a text whose first line is a JSON object is read as JSON.
std::vector<std::string> parse_piped_prompts(std::string_view text, const std::string& name);

// What <|endoftext|> or another special token that is written in a prompt becomes.
enum class SpecialTokens { kAsText, kAsTokens };

// Every prompt begins a document: <|endoftext|> comes before it, as in training and in CORE. An
// empty prompt is that token alone. With kAsTokens, a prompt that begins with it gets no second.
std::vector<std::vector<int32_t>> encode_prompts(const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer,
                                                 SpecialTokens special = SpecialTokens::kAsText);

// The first special token of the tokenizer that is written in the text; "" if there is none.
std::string special_token_in(std::string_view text, const Tokenizer& tokenizer);

}  // namespace assay
