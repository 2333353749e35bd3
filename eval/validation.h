// Validation loss in nats per counted target and bits per byte, always on the same tokens: of all
// the data (task "val"), or of one source of a mixture (task "val/NAME").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/evaluator.h"

namespace assay {

class Validation final : public Evaluator {
 public:
  // token_bytes[id] = bytes of the token's text, 0 for special tokens; empty without a tokenizer:
  // then there is no bits per byte. every: steps between evaluations.
  Validation(const ValidationSet::Config& set, int64_t every, std::vector<int32_t> token_bytes,
             int mask_id, std::string task = "val");

  void plan(MemoryPlan& plan);
  std::string task() const override { return task_; }
  bool due(const EvalMoment& at) const override;
  std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                     const EvalWatch& watch) override;
  std::vector<EvalResult> run(Exec on, Model& model);
  Batch first() const { return set_.micro(0); }
  int64_t tokens() const { return set_.tokens(); }

 private:
  ValidationSet set_;
  int64_t sequence_, micro_batch_;
  int64_t every_;
  std::vector<int32_t> token_bytes_;
  int mask_id_;
  std::string task_;
  View<float, 1> nats_;
};

}  // namespace assay
