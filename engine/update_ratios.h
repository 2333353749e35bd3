// The size of a step relative to the parameters, for each role:
//
//   grad_ratio = |g| / |p|        update_ratio = |u| / |p|
//
// |x|: root of the sum of squares over a group. p: the masters after the step. g: the gradient of
// the whole step before clipping. u: the amount subtracted by the step, lr weight_decay p_before +
// lr m_hat / (sqrt(v_hat) + eps), or with Muon lr weight_decay p_before + lr r X. The optimizer
// sums the squares in its own pass (AdamW::squares, MuonUpdate::squares).
#pragma once

#include <array>
#include <limits>

#include "base/view.h"
#include "engine/parameter_spec.h"

namespace assay {

inline constexpr std::array kRatioRoles = {Role::kEmbedding,    Role::kHead,        Role::kNorm,
                                           Role::kAttention,    Role::kDenseFfn,    Role::kRouter,
                                           Role::kRoutedExpert, Role::kSharedExpert};
// "embedding", "head", "norms", "attention", "dense_ffn", "router", "experts", "shared_experts".
const char* ratio_group_name(Role role);

// NaN if the model has no such parameters, or they are all 0.
struct GroupRatio {
  double grad = std::numeric_limits<double>::quiet_NaN();
  double update = std::numeric_limits<double>::quiet_NaN();
};
using GroupRatios = std::array<GroupRatio, kRatioRoles.size()>;  // by kRatioRoles

struct RatioSquares {
  double grad = 0, update = 0, master = 0;
};

// Adds the pieces of one tensor, in order. squares (pieces, 3): AdamW::squares.
void add(RatioSquares& sum, View<const double, 2> squares);

GroupRatio ratio_of(const RatioSquares& sum);

}  // namespace assay
