// How large the branch of a mixture begins, from its gates: the routed part relative to a dense FFN
// of the width K F that its K chosen experts have together, and with the S shared experts beside it
// relative to one of the active width (K + S) F.
//
// The down projections of experts and dense FFNs begin with one standard deviation, whatever their
// width, so an FFN of width W writes sqrt(W) times the RMS of one column, and K independent experts
// with gates g write sqrt(K F) g: g times the dense FFN of width K F. At initialisation logits are
// near 0, and
//
//   normalised gates            g = gate_scale / K
//   sigmoid, not normalised     g = gate_scale / 2, a little more as the largest scores are chosen
//   softmax, not normalised     g = gate_scale / E, likewise
//
// So models of other K begin with branches of other sizes, and their optimizer's steps change the
// branch in the same proportion; gate_scale K makes the first g 1. Shared experts have no gate:
// their branch is that of a dense FFN of their width, so the whole is sqrt((K g^2 + S) / (K + S))
// of the dense FFN. Init nmoe scales routed experts by depth besides.
#pragma once

#include "engine/config/config.h"

namespace assay {

// What gate_scale is divided by: K, 2 or E.
double gate_divisor(const MoeConfig& moe);
// 1: as large as the dense FFN.
double routed_scale(const MoeConfig& moe);
double branch_scale(const MoeConfig& moe);  // with the shared experts

}  // namespace assay
