#include "engine/update_ratios.h"

#include <cmath>

namespace assay {

const char* ratio_group_name(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return "embedding";
    case Role::kHead:
      return "head";
    case Role::kNorm:
      return "norms";
    case Role::kAttention:
      return "attention";
    case Role::kDenseFfn:
      return "dense_ffn";
    case Role::kRouter:
      return "router";
    case Role::kRoutedExpert:
      return "experts";
    case Role::kSharedExpert:
      return "shared_experts";
    case Role::kBuffer:
      break;
  }
  return "?";
}

void add(RatioSquares& sum, View<const double, 2> squares) {
  for (int64_t i = 0; i < squares.dim[0]; ++i) {
    sum.grad += squares.at(i, 0);
    sum.update += squares.at(i, 1);
    sum.master += squares.at(i, 2);
  }
}

GroupRatio ratio_of(const RatioSquares& sum) {
  if (!(sum.master > 0)) return {};
  return {.grad = std::sqrt(sum.grad / sum.master), .update = std::sqrt(sum.update / sum.master)};
}

}  // namespace assay
