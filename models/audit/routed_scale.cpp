#include "models/audit/routed_scale.h"

namespace assay {

double gate_divisor(const MoeConfig& moe) {
  if (moe.router.normalize_gates) return double(moe.top_k);
  return moe.router.score == RouterScore::kSigmoid ? 2 : double(moe.experts);
}

double routed_scale(const MoeConfig& moe) {
  return moe.router.gate_scale / gate_divisor(moe);
}

}  // namespace assay
