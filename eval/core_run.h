// Scores a model on CORE. Questions are packed into batches of rows without padding; the common
// prefix of a question's prompts is computed once.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cuda/exec.h"
#include "engine/model.h"
#include "eval/core_prompts.h"
#include "eval/core_score.h"

namespace assay {

// Scores questions: a model, or a stand-in in tests. Returns for each question one score per
// prompt.
class QuestionScorer {
 public:
  virtual ~QuestionScorer() = default;
  virtual std::vector<std::vector<PromptScore>> score(std::span<const CoreQuestion> questions) = 0;
};

struct ScorerConfig {
  // Rows that the model was planned for; at least the number of tokens of the longest prompt.
  int64_t batch_rows = 0;
  // kPlainLoop: one prompt per pass, all its rows through every layer and the head, as for logits
  // at every position; for comparison.
  enum class Way { kBatches, kPlainLoop } way = Way::kBatches;
};

class ModelScorer final : public QuestionScorer {
 public:
  // The model must be bound and loaded.
  ModelScorer(Exec on, Model& model, const ScorerConfig& config);
  std::vector<std::vector<PromptScore>> score(std::span<const CoreQuestion> questions) override;
  int64_t rows_computed() const { return rows_computed_; }

 private:
  // Prompts that are packed together, and the places of their scores.
  struct Group {
    std::vector<const CorePrompt*> prompts;
    std::vector<PromptScore*> scores;
    int64_t shared = 0;  // tokens of the common prefix, computed once
    int64_t rows = 0, asked = 0;
  };
  bool plain() const { return config_.way == ScorerConfig::Way::kPlainLoop; }
  int64_t asked_of(const CorePrompt& prompt) const;
  Group make_group(const CoreQuestion& question, std::vector<PromptScore>& scores) const;
  void add(const Group& group);
  void add_rows(const CorePrompt& prompt, int64_t from, int64_t to, const AttentionSegment& prefix);
  void flush();

  Exec on_;
  Model& model_;
  const ScorerConfig config_;
  int64_t rows_computed_ = 0;
  std::vector<int32_t> token_, position_, row_, target_;  // of the batch
  std::vector<AttentionSegment> segment_;
  struct Asked {
    PromptScore* score;
    size_t first, count;  // range in row_
  };
  std::vector<Asked> asked_;
  std::vector<float> nats_;
  std::vector<uint8_t> likely_;
};

struct CoreWork {
  int64_t prompts = 0;
  int64_t prompt_tokens = 0;  // as if each prompt was computed alone
};

// Rows whose questions are in memory together, and are packed into batches together. In recipes
// with tensor scales the answers of a block depend on no other block.
inline constexpr int64_t kCoreBlock = 256;

// The rows begin, begin + step, ... below end, at most kCoreBlock.
struct CoreRows {
  int64_t begin = 0, end = 0, step = 1;
  int32_t bos = 0;
  int64_t max_tokens = 0;  // per prompt; 0 = no limit
};

// The task without answers.
CoreTaskResult unscored_task(const CoreExamples& examples);
// Appends the answers of these rows to `result`, and adds to `work`.
void score_core_rows(QuestionScorer& scorer, const CoreExamples& examples, Encoder& encoder,
                     const CoreRows& rows, CoreTaskResult& result, CoreWork& work);

// The rows scored by one of several processes, of each task: in its order every `count`-th block of
// `block` neighbouring rows, from the `index`-th on. Their examples still come from the whole task.
// block is 1, or kCoreBlock where rows that are computed together share a scale.
struct CorePart {
  int64_t index = 0, count = 1;
  int64_t block = 1;
};

// rows_done: position in the task's rows.
using CoreProgress = std::function<void(int64_t rows_done, const CoreWork& work)>;

struct CoreSetting {
  int64_t max_tokens = 0;  // per prompt; 0 = no limit
  CorePart part = {};
};

// The tokenizer must have an <|endoftext|>, which begins every prompt.
CoreTaskResult run_core_task(QuestionScorer& scorer, const CoreExamples& examples,
                             const Tokenizer& tokenizer, const CoreSetting& setting,
                             const CoreProgress& progress);

}  // namespace assay
