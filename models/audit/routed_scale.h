// How large the branch of a mixture begins: the routed part relative to a dense FFN of the width
// K F that its K chosen experts have together, and with the S shared experts beside it relative to
// one of the active width (K + S) F.
//
// The down projections of experts and dense FFNs begin with one standard deviation, whatever their
// width, so an FFN of width W writes sqrt(W) times the RMS of one column, and K independent experts
// with gates of the RMS g write sqrt(K F) g: g times the dense FFN of width K F. The selection bias
// is 0, and the logits of a normalised token are normal, of standard deviation a = 0.02 sqrt(C):
//
//   normalised gates            g = gate_scale / K, as the chosen scores are nearly equal
//   sigmoid, not normalised     g^2 = gate_scale^2 times the mean of sigmoid(route_scale a m)^2
//   softmax, not normalised     likewise of exp(a m) over its sum over all experts
//
// over the K largest of E standard normal values, whose expectations m are taken after Blom (1958).
// At a = 0 these are gate_scale / 2 and / E; at C = 1024, E = 64 and K = 8 they are 1.5 and 2.5
// times as large. Against drawn routers sigmoids are right to 1%; softmax is up to 4% too small at
// C = 1024, 11% at 4096. Normalised gates of unequal scores are larger than gate_scale / K, by 0.2%
// and 4% there, and by 4% and 17% where all of 8 experts are chosen.
//
// Init nmoe begins a block's router and the gate and up projections of its routed experts with
// 0.02 s instead, s = 1 / sqrt(2 (l + 1)) in block l. That multiplies a by s, and a hidden unit
// silu(g) u by sqrt(v(s a) / v(a)), where v(a) = a^2 E[silu(a z)^2]: by about s^2.
//
// So models of other K begin with branches of other sizes, and their optimizer's steps change the
// branch in the same proportion; gate_scale K makes the first g 1. Shared experts have no gate:
// their branch is that of a dense FFN of their width, so the whole is sqrt((K g^2 + S) / (K + S))
// of the dense FFN.
#pragma once

#include "engine/config/config.h"

namespace assay {

// gate_scale over the size of the gates: K, or what the scores give, of init nmoe the geometric
// mean of the first and the last block with experts. 1 where no block has any.
double gate_divisor(const ModelConfig& model);

// 1: as large as the dense FFN.
struct BranchScale {
  double first = 1, last = 1;  // in the first and in the last block with experts
};
BranchScale branch_scale(const ModelConfig& model);  // with the shared experts

}  // namespace assay
