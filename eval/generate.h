// Texts that a model writes: prompts of different lengths side by side, one token of each at a
// time, with their keys and values kept. A text that ends makes room for the next prompt. What a
// text becomes depends on nothing beside it.
#pragma once

#include <functional>
#include <vector>

#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/model.h"
#include "eval/sampler.h"

namespace assay {

struct GeneratorConfig {
  int64_t texts = 1;      // at once
  int64_t positions = 0;  // of the longest text the model is planned for
  int64_t rows = 0;       // tokens of one call it is planned for, at least `positions` and `texts`
  int64_t vocab = 0;      // ids below it are drawn
  int64_t tokens = 0;     // at most so many are drawn for a prompt
  int32_t end = -1;       // a text ends where it is drawn; -1: nowhere
  Sampling sampling = {};
};

enum class TextEnd { kTokens, kEndToken, kContext };
const char* text_end_name(TextEnd end);  // "tokens", "end_of_text", "context"

struct GeneratedText {
  std::vector<int32_t> tokens;  // drawn, without the end token
  TextEnd end = TextEnd::kTokens;
};

// Tokens read in prompts, and tokens computed one at a time; the time includes the draws.
struct GenerationWork {
  int64_t prompt_tokens = 0, decoded_tokens = 0;
  double prompt_seconds = 0, decode_seconds = 0;
};

class Generator {
 public:
  using OnToken = std::function<void(size_t prompt, int32_t token)>;

  explicit Generator(const GeneratorConfig& config) : config_(config) {}
  // After the model's own plan().
  void plan(MemoryPlan& plan, Model& model, int64_t model_vocab);

  // Prompts of 1 to `positions` tokens. on_token hears of every token of a text as it is drawn.
  // UserError naming prompt and position where logits are not finite.
  std::vector<GeneratedText> run(Exec on, Model& model,
                                 const std::vector<std::vector<int32_t>>& prompts,
                                 const OnToken& on_token);
  const GenerationWork& work() const { return work_; }

 private:
  struct Text {
    size_t prompt = 0;
    int64_t place = 0;   // in the cache
    int64_t length = 0;  // tokens the cache has
    int32_t next = 0;    // drawn, not read yet
  };
  // The part of each text of `texts` that comes next, `token`, is read, and what follows it drawn;
  // the texts that go on.
  std::vector<Text> step(Exec on, Model& model, std::vector<Text> texts,
                         const std::vector<int32_t>& token, const std::vector<TextPart>& part);
  std::vector<Text> read_prompts(Exec on, Model& model);
  std::vector<Text> decode(Exec on, Model& model, const std::vector<Text>& texts);

  const GeneratorConfig config_;
  View<float, 2> logits_;  // (texts, V)   the host's
  GenerationWork work_;
  // Of a run.
  const std::vector<std::vector<int32_t>>* prompts_ = nullptr;
  const OnToken* on_token_ = nullptr;
  std::vector<GeneratedText> out_;
  size_t waiting_ = 0;         // the first prompt that is not read yet
  std::vector<int64_t> free_;  // places, the last first
};

}  // namespace assay
