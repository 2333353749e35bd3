// Validation loss in nats per counted target and bits per byte, always on the same tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/evaluator.h"

namespace assay {

class Validation final : public Evaluator {
 public:
  // token_bytes[id] = bytes of the token's text, 0 for special tokens; empty when there is no tokenizer, then
  // bits per byte is not given.
  Validation(const ValidationSet::Config& set, int64_t every, std::vector<int32_t> token_bytes,
             int mask_id);

  void plan(MemoryPlan& plan);
  bool due(int64_t steps_done, int64_t steps) const override;
  std::vector<EvalResult> run(Exec on, Model& model) override;
  Batch first() const { return set_.micro(0); }
  int64_t tokens() const { return set_.tokens(); }

 private:
  ValidationSet set_;
  int64_t sequence_, micro_batch_;
  int64_t every_;
  std::vector<int32_t> token_bytes_;
  int mask_id_;
  View<float, 1> nats_;
};

}  // namespace assay
