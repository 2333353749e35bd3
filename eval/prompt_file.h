// Prompts from a file: one a line; of a file whose name ends in .jsonl, the "prompt" of the JSON
// object on each line. And as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.h"

namespace assay {

// UserError with the file, and the line, of what cannot be read or is empty.
std::vector<std::string> read_prompts(const std::string& path);

// Of a file's contents.
enum class PromptLines { kText, kJson };
std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name);

// Every prompt begins a document: <|endoftext|> stands before it, as in training and in CORE.
std::vector<std::vector<int32_t>> encode_prompts(const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer);

}  // namespace assay
