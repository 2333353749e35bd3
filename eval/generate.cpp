#include "eval/generate.h"

#include <chrono>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/seconds_since.h"
#include "engine/run/progress.h"
#include "eval/ranks.h"

namespace assay {

namespace {

constexpr int32_t kNotFinite = -1;

// The first id whose logit is not finite; -1 if there is none.
int64_t first_not_finite(View<const float, 1> logits) {
  for (int64_t v = 0; v < logits.dim[0]; ++v) {
    if (!std::isfinite(logits[v])) return v;
  }
  return -1;
}

}  // namespace

const char* text_end_name(TextEnd end) {
  switch (end) {
    case TextEnd::kTokens:
      return "tokens";
    case TextEnd::kEndToken:
      return "end_of_text";
    case TextEnd::kContext:
      return "context";
  }
  return "";
}

void Generator::plan(MemoryPlan& plan, Model& model, int64_t model_vocab) {
  CHECK(config_.vocab > 0 && config_.vocab <= model_vocab && config_.rows >= config_.positions,
        "generator: %ld of %ld ids, %ld rows for %ld positions", long(config_.vocab),
        long(model_vocab), long(config_.rows), long(config_.positions));
  model.plan_cache(plan, config_.texts);
  plan.add(Section::kHostVisible, "generator.logits", logits_, {config_.texts, model_vocab});
}

std::vector<Generator::Text> Generator::step(Exec on, Model& model, std::vector<Text> texts,
                                             const std::vector<int32_t>& token,
                                             const std::vector<TextPart>& part) {
  const auto count = static_cast<int64_t>(texts.size());
  const View<float, 2> logits = logits_.rows(0, count);
  model.extend(on,
               {.token = {token.data(), {int64_t(token.size())}}, .part = {part.data(), {count}}},
               logits);
  parallel_for(on, count, [&](int64_t i) {
    Text& text = texts[size_t(i)];
    text.length += part[size_t(i)].tokens;
    const View<const float, 1> known{logits.row(i), {config_.vocab}};
    text.next = kNotFinite;
    if (first_not_finite(known) >= 0) return;
    for (const int32_t id : config_.unused) {
      logits.row(i)[id] = -std::numeric_limits<float>::infinity();
    }
    text.next =
        sample_token(known, config_.sampling, first_text_ + int64_t(text.prompt), text.length);
  });
  std::vector<Text> going_on;
  for (int64_t i = 0; i < count; ++i) {
    const Text& text = texts[size_t(i)];
    if (text.next == kNotFinite) {
      const View<const float, 1> known{logits.row(i), {config_.vocab}};
      const int64_t id = first_not_finite(known);
      throw ComputedError(
          strprintf("prompt %zu: the model's logit of token %ld at position %ld is %g",
                    size_t(first_text_) + text.prompt + 1, long(id), long(text.length),
                    unsigned_nan(double(known[id]))),
          "its weights are not finite or too large; an earlier checkpoint may be sound");
    }
    GeneratedText& out = out_[text.prompt];
    const bool ended = text.next == config_.end;
    if (!ended) {
      out.tokens.push_back(text.next);
      (*on_token_)(text.prompt, text.next);
    }
    const bool enough = int64_t(out.tokens.size()) >= config_.tokens;
    const bool full = text.length >= config_.positions;
    if (ended || enough || full) {
      out.end = ended ? TextEnd::kEndToken : enough ? TextEnd::kTokens : TextEnd::kContext;
      free_.push_back(text.place);
    } else {
      going_on.push_back(text);
    }
  }
  return going_on;
}

std::vector<Generator::Text> Generator::read_prompts(Exec on, Model& model) {
  std::vector<Text> texts;
  std::vector<int32_t> token;
  std::vector<TextPart> part;
  while (waiting_ < prompts_->size() && !free_.empty()) {
    const std::vector<int32_t>& prompt = (*prompts_)[waiting_];
    if (int64_t(token.size() + prompt.size()) > config_.rows) break;
    texts.push_back({.prompt = waiting_, .place = free_.back()});
    part.push_back({.text = free_.back(), .tokens = int64_t(prompt.size())});
    token.insert(token.end(), prompt.begin(), prompt.end());
    free_.pop_back();
    ++waiting_;
  }
  const auto start = std::chrono::steady_clock::now();
  work_.prompt_tokens += int64_t(token.size());
  texts = step(on, model, std::move(texts), token, part);
  work_.prompt_seconds += seconds_since(start);
  return texts;
}

std::vector<Generator::Text> Generator::decode(Exec on, Model& model,
                                               const std::vector<Text>& texts) {
  std::vector<int32_t> token;
  std::vector<TextPart> part;
  for (const Text& text : texts) {
    token.push_back(text.next);
    part.push_back({.text = text.place, .position = text.length, .tokens = 1});
  }
  const auto start = std::chrono::steady_clock::now();
  work_.decoded_tokens += int64_t(texts.size());
  std::vector<Text> going_on = step(on, model, texts, token, part);
  work_.decode_seconds += seconds_since(start);
  return going_on;
}

std::vector<GeneratedText> Generator::run(Exec on, Model& model,
                                          const std::vector<std::vector<int32_t>>& prompts,
                                          const OnToken& on_token, int64_t first_text) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    CHECK(!prompts[i].empty() && int64_t(prompts[i].size()) <= config_.positions,
          "prompt %zu has %zu tokens, planned for 1 to %ld", i, prompts[i].size(),
          long(config_.positions));
  }
  prompts_ = &prompts;
  on_token_ = &on_token;
  first_text_ = first_text;
  out_.assign(prompts.size(), {});
  waiting_ = 0;
  free_.clear();
  for (int64_t place = config_.texts; place-- > 0;) free_.push_back(place);
  std::vector<Text> texts;
  while (waiting_ < prompts.size() || !texts.empty()) {
    if (waiting_ < prompts.size() && !free_.empty()) {
      const std::vector<Text> begun = read_prompts(on, model);
      texts.insert(texts.end(), begun.begin(), begun.end());
    } else {
      texts = decode(on, model, texts);
    }
  }
  return std::move(out_);
}

}  // namespace assay
