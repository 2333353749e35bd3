// Reads prompts from a file, one per line; in a file whose name ends in .jsonl, each line is a JSON
// object with "prompt". Encodes them as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.h"

namespace assay {

// UserError with file and line if a prompt cannot be read or is empty.
std::vector<std::string> read_prompts(const std::string& path);

// The same from a file's contents; `name` is for messages.
enum class PromptLines { kText, kJson };
std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name);

// Every prompt begins a document: <|endoftext|> comes before it, as in training and in CORE.
std::vector<std::vector<int32_t>> encode_prompts(const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer);

}  // namespace assay
