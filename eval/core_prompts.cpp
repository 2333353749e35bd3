#include "eval/core_prompts.h"

#include <algorithm>

#include "base/check.h"
#include "eval/python_random.h"

namespace assay {

namespace {

constexpr uint32_t kOrderSeed = 1337;
constexpr uint32_t kShotSeed = 1234;

// UTF-8 of every character that Python's str.isspace accepts.
constexpr std::string_view kSpaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1C",         "\x1D",         "\x1E",         "\x1F",         " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
    "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
    "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
    "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

// A row with its answer.
std::string answered(const CoreTask& task, const CoreRow& row) {
  switch (task.kind) {
    case CoreKind::kMultipleChoice:
      return row.context + task.delimiter + row.options[size_t(row.gold)];
    case CoreKind::kSchema:
      return row.options[size_t(row.gold)] + task.delimiter + row.continuation;
    case CoreKind::kLanguageModeling:
      return std::string(python_strip(row.context)) + task.delimiter + row.continuation;
  }
  return "";
}

using Tokens = std::vector<int32_t>;

int64_t common_prefix(const std::vector<Tokens>& all) {
  size_t length = all[0].size();
  for (const Tokens& t : all) {
    const auto limit = std::min(length, t.size());
    length =
        size_t(std::mismatch(all[0].begin(), all[0].begin() + int64_t(limit), t.begin()).first -
               all[0].begin());
  }
  return int64_t(length);
}

int64_t common_suffix(const std::vector<Tokens>& all) {
  size_t length = all[0].size();
  for (const Tokens& t : all) {
    const auto limit = std::min(length, t.size());
    length =
        size_t(std::mismatch(all[0].rbegin(), all[0].rbegin() + int64_t(limit), t.rbegin()).first -
               all[0].rbegin());
  }
  return int64_t(length);
}

// cut: tokens that the prompt has lost at its beginning.
std::string why_not(const CorePrompt& prompt, int64_t cut) {
  // All of a prompt is the common ending.
  if (prompt.begin + cut < 1) return "the contexts do not differ";
  if (prompt.begin >= prompt.end) return "no token of the answer is left to score";
  // The first token of a text has nothing before it to be predicted from.
  if (prompt.begin < 1) return "the answer is longer than the model's context";
  return "";
}

}  // namespace

std::string_view python_strip(std::string_view text) {
  const auto cut = [&](auto has, auto drop) {
    for (bool again = true; again && !text.empty();) {
      again = false;
      for (const std::string_view space : kSpaces) {
        if (has(space)) drop(space.size()), again = true;
      }
    }
  };
  cut([&](std::string_view s) { return text.starts_with(s); },
      [&](size_t n) { text.remove_prefix(n); });
  cut([&](std::string_view s) { return text.ends_with(s); },
      [&](size_t n) { text.remove_suffix(n); });
  return text;
}

CoreExamples::CoreExamples(CoreTask task, std::vector<CoreRow> rows, int64_t max_rows)
    : task_(std::move(task)),
      rows_(std::move(rows)),
      order_(PythonRandom(kOrderSeed).shuffled(int64_t(rows_.size()))) {
  if (max_rows > 0 && max_rows < size()) order_.resize(size_t(max_rows));
  if (task_.shots >= size()) {
    throw UserError(strprintf("%s: %ld examples before each question, and %ld rows to take them "
                              "from",
                              task_.label.c_str(), long(task_.shots), long(size())),
                    strprintf("take at least %ld rows", long(task_.shots + 1)));
  }
}

std::vector<int64_t> CoreExamples::shots(int64_t idx) const {
  std::vector<int64_t> others =
      PythonRandom(kShotSeed + static_cast<uint32_t>(idx)).sample(size() - 1, task_.shots);
  for (int64_t& other : others) other += other >= idx ? 1 : 0;
  return others;
}

std::vector<std::string> CoreExamples::prompts(int64_t idx) const {
  std::string before;
  for (const int64_t shot : shots(idx)) before += answered(task_, row(shot)) + "\n\n";
  const CoreRow& asked = row(idx);
  if (task_.kind == CoreKind::kLanguageModeling) {
    const std::string question =
        before + std::string(python_strip(asked.context)) + task_.delimiter;
    return {std::string(python_strip(question)), question + asked.continuation};
  }
  std::vector<std::string> texts;
  for (const std::string& option : asked.options) {
    texts.push_back(before + (task_.kind == CoreKind::kSchema
                                  ? option + task_.delimiter + asked.continuation
                                  : asked.context + task_.delimiter + option));
  }
  return texts;
}

CoreQuestion CoreExamples::question(int64_t idx, Encoder& encoder, int32_t bos,
                                    int64_t max_tokens) const {
  std::vector<Tokens> tokens;
  for (const std::string& text : prompts(idx)) {
    tokens.push_back({bos});
    encoder.encode(text, tokens.back());
  }
  CoreQuestion question{.prompts = {}, .gold = row(idx).gold, .not_scored = ""};
  // Else the delimiter alone would be scored.
  const bool continued = task_.kind != CoreKind::kMultipleChoice;
  if (continued && row(idx).continuation.empty()) question.not_scored = "the answer is empty";
  if (task_.kind == CoreKind::kLanguageModeling) {
    const Tokens& without = tokens[0];
    const int64_t begin = int64_t(without.size());
    if (question.not_scored.empty() && common_prefix(tokens) < begin) {
      question.not_scored = "the tokens before the answer change when it is added";
    }
    question.prompts.push_back(
        {.tokens = tokens[1], .begin = begin, .end = int64_t(tokens[1].size())});
  } else {
    const int64_t prefix = common_prefix(tokens), suffix = common_suffix(tokens);
    for (Tokens& t : tokens) {
      const int64_t length = int64_t(t.size());
      const int64_t begin = task_.kind == CoreKind::kSchema ? length - suffix : prefix;
      question.prompts.push_back({.tokens = std::move(t), .begin = begin, .end = length});
    }
  }
  for (CorePrompt& prompt : question.prompts) {
    const int64_t cut =
        max_tokens > 0 ? std::max(int64_t{0}, int64_t(prompt.tokens.size()) - max_tokens) : 0;
    question.cut_prompts += cut > 0 ? 1 : 0;
    prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + cut);
    prompt.begin -= cut;
    prompt.end -= cut;
    if (question.not_scored.empty()) question.not_scored = why_not(prompt, cut);
  }
  return question;
}

int64_t limit_of_rows(const std::vector<CoreExamples>& tasks, int64_t max_rows) {
  const bool any = std::any_of(tasks.begin(), tasks.end(),
                               [](const CoreExamples& task) { return task.has_fewer_rows(); });
  return any ? max_rows : 0;
}

int64_t estimated_tokens(const CoreExamples& examples, const Tokenizer& tokenizer,
                         int64_t max_tokens) {
  constexpr int64_t kLookedAt = 8;
  Encoder encoder(tokenizer);
  const int64_t looked = std::min(kLookedAt, examples.size());
  int64_t tokens = 0;
  for (int64_t i = 0; i < looked; ++i) {
    const CoreQuestion q =
        examples.question(i * examples.size() / looked, encoder, tokenizer.eot(), max_tokens);
    for (const CorePrompt& p : q.prompts) tokens += int64_t(p.tokens.size());
  }
  return tokens * examples.size() / std::max<int64_t>(looked, 1);
}

}  // namespace assay
