// A model scored on CORE. Questions are packed into batches of rows, without padding; what the
// prompts of a question begin with alike is computed once.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cuda/exec.h"
#include "engine/model.h"
#include "eval/core_prompts.h"
#include "eval/core_score.h"

namespace assay {

// What answers questions: a model, or a test's stand-in for one. For each question a score for each
// of its prompts.
class QuestionScorer {
 public:
  virtual ~QuestionScorer() = default;
  virtual std::vector<std::vector<PromptScore>> score(std::span<const CoreQuestion> questions) = 0;
};

struct ScorerConfig {
  int64_t batch_rows =
      0;  // the model was planned for; at least as many as the longest prompt has tokens
  // kPlainLoop: a prompt a pass, all its rows through every layer and the head, as its logits at
  // every position take; for comparison.
  enum class Way { kBatches, kPlainLoop } way = Way::kBatches;
};

class ModelScorer final : public QuestionScorer {
 public:
  // The model is bound and loaded.
  ModelScorer(Exec on, Model& model, const ScorerConfig& config);
  std::vector<std::vector<PromptScore>> score(std::span<const CoreQuestion> questions) override;
  int64_t rows_computed() const { return rows_computed_; }

 private:
  // Prompts that lie together, and where they go.
  struct Group {
    std::vector<const CorePrompt*> prompts;
    std::vector<PromptScore*> scores;
    int64_t shared = 0;  // tokens that all begin with, computed once
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
    size_t first, count;  // of row_
  };
  std::vector<Asked> asked_;
  std::vector<float> nats_;
  std::vector<uint8_t> likely_;
};

struct CoreWork {
  int64_t prompts = 0;
  int64_t prompt_tokens = 0;  // as if each prompt was computed alone
};

// The rows that one of several processes asks: every `count`-th, from the `index`-th on, of the
// task's order. Their examples are those of the whole task.
struct CorePart {
  int64_t index = 0, count = 1;
};

// rows_done: of the task.
using CoreProgress = std::function<void(int64_t rows_done, const CoreWork& work)>;

struct CoreSetting {
  int64_t max_tokens = 0;  // of a prompt, 0: no limit
  CorePart part = {};
};

// The tokenizer has an <|endoftext|>, which begins every prompt.
CoreTaskResult run_core_task(QuestionScorer& scorer, const CoreExamples& examples,
                             const Tokenizer& tokenizer, const CoreSetting& setting,
                             const CoreProgress& progress);

}  // namespace assay
