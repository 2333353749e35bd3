// Validation loss in nats per counted target and bits per byte, always on the same tokens: of all
// the data (task "val"), or of one source of a mixture (task "val/NAME").
//
// Ranks share the micro-batches in rounds: of each round every rank computes one, gets the losses
// of the others' targets, and adds all in the order of the targets. So the value is the same on all
// ranks, and to the bit that of one rank in every recipe, also where a micro-batch shares a scale.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/evaluator.h"
#include "eval/ranks.h"

namespace assay {

class Validation final : public Evaluator {
 public:
  // token_bytes[id] = bytes of the token's text, 0 for special tokens; further ids have no text.
  // Empty without a tokenizer: then there is no bits per byte. every: steps between evaluations.
  // ranks: of host memory, who share the work; null: this one alone.
  Validation(const ValidationSet::Config& set, int64_t every, std::vector<int32_t> token_bytes,
             int mask_id, std::string task = "val", const EvaluationRanks& ranks = {});

  // planned_ranks: of a launch that is planned, where `ranks` is null.
  void plan(MemoryPlan& plan, int planned_ranks = 1);
  std::string task() const override { return task_; }
  bool due(const EvalMoment& at) const override;
  int64_t every() const override { return every_; }
  std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                     const EvalWatch& watch) override;
  std::vector<EvalResult> run(Exec on, Model& model);
  // The same on every rank.
  Batch first() const { return set_.micro(0); }
  int64_t tokens() const { return set_.tokens(); }

 private:
  void compute(Exec on, Model& model, int micro, View<float, 1> nats) const;

  ValidationSet set_;
  int64_t sequence_, micro_batch_;
  int64_t every_;
  std::vector<int32_t> token_bytes_;
  int mask_id_;
  std::string task_;
  const EvaluationRanks ranks_;
  View<float, 2> nats_;  // (ranks, targets of a micro-batch)   of one round
};

}  // namespace assay
