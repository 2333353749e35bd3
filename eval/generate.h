// Generates texts: prompts of different lengths side by side, one token of each at a time, with a
// KV cache. A text that ends frees its place for the next prompt. A text does not depend on the
// texts beside it.
#pragma once

#include <functional>
#include <vector>

#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/model.h"
#include "eval/sampler.h"

namespace assay {

struct GeneratorConfig {
  int64_t texts = 1;                 // at the same time
  int64_t positions = 0;             // length of the longest text that the model is planned for
  int64_t rows = 0;                  // planned tokens per call, at least `positions` and `texts`
  int64_t vocab = 0;                 // only ids below it are drawn
  std::vector<int32_t> unused = {};  // of these, ids that are never drawn; not all of them
  int64_t tokens = 0;                // most tokens drawn for a prompt
  int32_t end = -1;                  // drawing this id ends a text; -1 = none
  Sampling sampling = {};
};

enum class TextEnd { kTokens, kEndToken, kContext };
const char* text_end_name(TextEnd end);  // "tokens", "end_of_text", "context"

struct GeneratedText {
  std::vector<int32_t> tokens;  // drawn, without the end token
  TextEnd end = TextEnd::kTokens;
};

// Prefill (tokens of prompts) and decoding (one token at a time); the time includes the draws.
struct GenerationWork {
  int64_t prompt_tokens = 0, decoded_tokens = 0;
  double prompt_seconds = 0, decode_seconds = 0;
};

class Generator {
 public:
  using OnToken = std::function<void(size_t prompt, int32_t token)>;

  explicit Generator(const GeneratorConfig& config) : config_(config) {}
  // Must be called after the model's own plan().
  void plan(MemoryPlan& plan, Model& model, int64_t model_vocab);

  // Prompts have 1 to `positions` tokens. on_token is called with every token of a text as it is
  // drawn; what it throws ends the run. Prompt i is text first_text + i in its draws and in
  // messages. UserError naming prompt and position if logits are not finite.
  std::vector<GeneratedText> run(Exec on, Model& model,
                                 const std::vector<std::vector<int32_t>>& prompts,
                                 const OnToken& on_token, int64_t first_text = 0);
  const GenerationWork& work() const { return work_; }

 private:
  struct Text {
    size_t prompt = 0;
    int64_t place = 0;   // in the KV cache
    int64_t length = 0;  // tokens in the KV cache
    int32_t next = 0;    // drawn, not in the cache yet
  };
  // Reads the next tokens of each text (`token`, divided by `part`) and draws the token that
  // follows. Returns the texts that continue.
  std::vector<Text> step(Exec on, Model& model, std::vector<Text> texts,
                         const std::vector<int32_t>& token, const std::vector<TextPart>& part);
  std::vector<Text> read_prompts(Exec on, Model& model);
  std::vector<Text> decode(Exec on, Model& model, const std::vector<Text>& texts);

  const GeneratorConfig config_;
  View<float, 2> logits_;  // (texts, V), host visible
  GenerationWork work_;
  // Valid during run().
  const std::vector<std::vector<int32_t>>* prompts_ = nullptr;
  const OnToken* on_token_ = nullptr;
  int64_t first_text_ = 0;
  std::vector<GeneratedText> out_;
  size_t waiting_ = 0;         // the first prompt that is not read yet
  std::vector<int64_t> free_;  // free places in the cache, taken from the back
};

}  // namespace assay
