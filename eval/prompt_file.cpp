#include "eval/prompt_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/utf8.h"

namespace assay {

namespace {

std::string json_prompt(std::string_view line, const std::string& where) {
  const auto row = json_of(line);
  if (!row.is_object() || !row.contains("prompt") || !row["prompt"].is_string()) {
    throw UserError(
        where + ": not a JSON object with a string \"prompt\"",
        "a line is {\"prompt\": \"Once upon a time\"}; plain lines are read from a file "
        "whose name does not end in .jsonl");
  }
  return row["prompt"].get<std::string>();
}

// A special token written in a text.
struct Written {
  size_t at = std::string_view::npos;
  int32_t id = -1;
};

// The special tokens that are written in a text, one after the other.
class SpecialTokensIn {
 public:
  SpecialTokensIn(std::string_view text, const Vocabulary& vocabulary)
      : text_(text), vocabulary_(vocabulary) {
    for (const int32_t id : vocabulary.special) {
      if (!name_of(id).empty()) found_.push_back({.at = text.find(name_of(id)), .id = id});
    }
  }

  // The first one at `from` or after it; of two at the same place the longer. `from` must ascend
  // from call to call: the text is searched once for each token.
  Written next(size_t from) {
    Written first;
    for (Written& one : found_) {
      if (one.at < from) one.at = text_.find(name_of(one.id), from);
      if (one.at == std::string_view::npos) continue;
      const bool longer =
          first.id >= 0 && one.at == first.at && name_of(one.id).size() > name_of(first.id).size();
      if (first.id < 0 || one.at < first.at || longer) first = one;
    }
    return first;
  }

 private:
  const std::string& name_of(int32_t id) const { return vocabulary_.bytes[size_t(id)]; }

  std::string_view text_;
  const Vocabulary& vocabulary_;
  std::vector<Written> found_;  // of each token the next place where it is
};

// Appends the tokens of `text`, its special tokens by their ids.
void encode_with_special(std::string_view text, const Vocabulary& vocabulary, Encoder& encoder,
                         std::vector<int32_t>& tokens) {
  SpecialTokensIn specials(text, vocabulary);
  for (size_t from = 0; from < text.size();) {
    const Written special = specials.next(from);
    encoder.encode(text.substr(from, special.at - from), tokens);
    if (special.id < 0) return;
    tokens.push_back(special.id);
    from = special.at + vocabulary.bytes[size_t(special.id)].size();
  }
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view text, PromptLines lines,
                                       const std::string& name) {
  std::vector<std::string> prompts;
  text = without_mark(text);
  for (long number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string where = strprintf("%s:%ld", name.c_str(), number);
    prompts.push_back(lines == PromptLines::kJson ? json_prompt(line, where) : std::string(line));
  }
  if (prompts.empty()) {
    throw UserError(name + " has no prompts",
                    "write one prompt per line; assay sample without prompts writes a text from "
                    "its beginning");
  }
  return prompts;
}

std::vector<std::string> read_prompts(const std::string& path) {
  const bool json = path.ends_with(".jsonl");
  return parse_prompts(read_file(path), json ? PromptLines::kJson : PromptLines::kText, path);
}

std::vector<std::string> parse_piped_prompts(std::string_view text, const std::string& name) {
  text = without_mark(text);
  const std::string_view first = text.substr(std::min(text.find_first_not_of("\r\n"), text.size()));
  const bool json = json_of(first.substr(0, first.find('\n'))).is_object();
  return parse_prompts(text, json ? PromptLines::kJson : PromptLines::kText, name);
}

std::vector<std::vector<int32_t>> encode_prompts(const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer,
                                                 SpecialTokens special) {
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  Encoder encoder(tokenizer);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool as_tokens = special == SpecialTokens::kAsTokens;
    if (!as_tokens || !prompts[i].starts_with(kEndOfText)) tokens[i] = {tokenizer.eot()};
    if (as_tokens) {
      encode_with_special(prompts[i], tokenizer.vocabulary(), encoder, tokens[i]);
    } else {
      encoder.encode(prompts[i], tokens[i]);
    }
  }
  return tokens;
}

std::string special_token_in(std::string_view text, const Tokenizer& tokenizer) {
  const Written special = SpecialTokensIn(text, tokenizer.vocabulary()).next(0);
  return special.id < 0 ? "" : tokenizer.vocabulary().bytes[size_t(special.id)];
}

}  // namespace assay
