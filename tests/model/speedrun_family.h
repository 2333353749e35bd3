// The published family dense, moe-64, moe-256 (768 wide, 12 layers), with known counts and
// horizons.
#pragma once

#include "engine/config/config.h"

namespace assay {

inline Config speedrun_dense() {
  Config c;
  c.model.hidden = 768, c.model.layers = 12, c.model.heads = 12, c.model.ffn = 3072;
  c.model.vocab_size = 50304;
  c.run.steps = 9536, c.run.batch_tokens = 524288, c.run.sequence = 2048;
  c.contract.coefficient = 26.24021755633395;
  return c;
}

inline Config speedrun_moe(int64_t experts, int64_t top_k, int64_t shared, int64_t first_dense) {
  Config c = speedrun_dense();
  MoeConfig& m = c.model.moe.emplace();
  m.experts = experts, m.top_k = top_k, m.shared = shared, m.expert_ffn = 384;
  m.first_dense_layers = first_dense;
  return c;
}

}  // namespace assay
