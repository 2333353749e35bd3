// Prompts from a file: one a line; of a file whose name ends in .jsonl, the "prompt" of the JSON object on each line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

// UserError with the file, and the line, of what cannot be read or is empty.
std::vector<std::string> read_prompts(const std::string& path);

// Of a file's contents.
enum class PromptLines { kText, kJson };
std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name);

}  // namespace assay
