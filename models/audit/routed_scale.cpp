#include "models/audit/routed_scale.h"

#include <cmath>

namespace assay {

double gate_divisor(const MoeConfig& moe) {
  if (moe.router.normalize_gates) return double(moe.top_k);
  return moe.router.score == RouterScore::kSigmoid ? 2 : double(moe.experts);
}

double routed_scale(const MoeConfig& moe) {
  return moe.router.gate_scale / gate_divisor(moe);
}

double branch_scale(const MoeConfig& moe) {
  const double gate = routed_scale(moe);
  if (moe.shared == 0) return gate;
  const double routed = double(moe.top_k), shared = double(moe.shared);
  return std::sqrt((routed * gate * gate + shared) / (routed + shared));
}

}  // namespace assay
