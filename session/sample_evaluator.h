// Generates texts while a run trains (section eval.samples), into RUN/samples.jsonl and the log.
// Draws depend only on prompt and position, so texts of two steps differ by what was learned.
//
// Ranks share the prompts where a text does not depend on those beside it: on a CPU, without scales
// over several rows. Elsewhere rank 0 writes them all. Every rank gets the texts, rank 0 writes the
// file.
//
//   {"step": 500, "prompt": "Once", "text": " upon a time", "tokens": [...], "end": "tokens"}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "engine/evaluator.h"
#include "eval/generate.h"
#include "eval/ranks.h"
#include "session/run_data.h"

namespace assay {

class TrainingSamples final : public Evaluator {
 public:
  // config.eval.samples must be set. UserError for prompts that cannot be read or are too long, and
  // when there is no tokenizer with an <|endoftext|>. ranks: as in eval/ranks.h.
  TrainingSamples(const Config& config, const RunData& data, std::string run,
                  const EvaluationRanks& ranks = {});
  // Plans the KV cache of the texts and their logits. Call after the model's own plan().
  void plan(MemoryPlan& plan, Model& model);
  // SHA-256 of the prompts, in their order.
  std::string prompts_sha256() const;

  std::string task() const override { return "samples"; }
  bool due(const EvalMoment& at) const override;
  int64_t every() const override { return every_; }
  std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                     const EvalWatch& watch) override;

 private:
  std::optional<std::vector<GeneratedText>> generate(Exec on, Model& model, const EvalWatch& watch);

  const SamplesConfig config_;
  const int64_t every_, vocab_;
  const std::string run_;
  const EvaluationRanks ranks_;
  const bool own_scales_;  // no row shares a scale or draws with another
  Tokenizer tokenizer_;
  std::vector<std::string> prompts_;
  std::vector<std::vector<int32_t>> tokens_;  // of prompts_
  Generator generator_;
};

}  // namespace assay
