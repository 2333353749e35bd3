#include "eval/prompt_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"

namespace assay {

namespace {

std::string json_prompt(std::string_view line, const std::string& where) {
  const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || !row.contains("prompt") || !row["prompt"].is_string()) {
    throw UserError(
        where + ": no JSON object with a string \"prompt\"",
        "a line is {\"prompt\": \"Once upon a time\"}; plain lines are read from a file "
        "whose name does not end in .jsonl");
  }
  return row["prompt"].get<std::string>();
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name) {
  std::vector<std::string> prompts;
  for (long number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::string where = strprintf("%s:%ld", name.c_str(), number);
    prompts.push_back(lines == PromptLines::kJson ? json_prompt(line, where) : std::string(line));
    if (prompts.back().empty()) {
      throw UserError(where + ": the prompt is empty", "a prompt is one line with some text");
    }
  }
  if (prompts.empty()) throw UserError(name + " has no prompts", "write one prompt per line");
  return prompts;
}

std::vector<std::string> read_prompts(const std::string& path) {
  const bool json = path.ends_with(".jsonl");
  return parse_prompts(read_file(path), json ? PromptLines::kJson : PromptLines::kText, path);
}

std::vector<std::vector<int32_t>> encode_prompts(const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  Encoder encoder(tokenizer);
  for (size_t i = 0; i < prompts.size(); ++i) {
    tokens[i] = {tokenizer.eot()};
    encoder.encode(prompts[i], tokens[i]);
  }
  return tokens;
}

}  // namespace assay
