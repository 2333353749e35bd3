// The router of a mixture of experts: scores, the top-K experts of each token, their gates, and the
// two losses on the logits z (N, E).
//
//   sigmoid   s = sigmoid(route_scale * z)      softmax   s = softmax(z)
//   chosen    the K largest s + bias, in descending order; ties: the lower id wins, NaN sorts last
//   ghat_i    s_i / sum of chosen s             (sigmoid: the sum is at least 1e-12)
//   gate_i    gate_scale * ghat_i, or gate_scale * s_i if gates are not normalised
//
// Without a bias the K largest logits are chosen: scores increase with them, and logits neither
// round nor underflow. The bias affects the selection only, never the gate.
//
//   aux kSwitch   E sum_e f_e P_e                          P_e = mean_t s_te / sum_j s_tj, a sum of
//                                                          sigmoid scores at least 1e-12
//   aux kGates    E sum_e f_e I_e / sum_j I_j              I_e = sum_t ghat_te
//   z             mean_t logsumexp(z_t)^2
//
// f is the share of the assignments (no gradient): of this call (kMicro), of the step so far with
// this call (kStep, from `counts`), or of each sequence (kSequence: the loss is the mean of the
// expression over the sequences). P and I are summed in float over 64 tokens; the CPU adds these
// sums in float, a GPU in double. All that follows is in double. Reference: tests/ref/router.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/router_choices.h"

namespace assay {

enum class NormalizeGates { kNo, kYes };

// K is expert.dim[1].
struct RouterSettings {
  RouterScore score = RouterScore::kSigmoid;
  NormalizeGates normalize = NormalizeGates::kYes;
  float route_scale = 1.0f;  // > 0; sigmoid only
  float gate_scale = 1.0f;
  RouterAux aux = RouterAux::kNone;
  AuxScope scope = AuxScope::kMicro;
  int64_t sequence = 0;  // T, with AuxScope::kSequence: tokens of one sequence, N a multiple of it
};

// Elements of RouterForward::measures.
enum RouterMeasure {
  kAuxValue,     // the auxiliary loss, without its weight; 0 with RouterAux::kNone
  kZValue,       // mean_t logsumexp(z_t)^2; 0 without logsumexp
  kGateEntropy,  // mean_t of -sum_k ghat ln ghat
  kRouterMeasures
};

struct RouterForward {
  View<int32_t, 2> expert;  // out (N, K)   ids, best first
  View<float, 2> gate;      // out (N, K)
  // out (N)      of z; needed by the z-loss, and by softmax with kSwitch, with a bias or with gates
  //              that are not normalised
  View<float, 1> logsumexp = {};
  View<float, 1> score_sum = {};  // out (N)      sum_e s, at least 1e-12; for sigmoid, kSwitch
  // out (router_groups(N, settings), E)   d aux / d share of one token; needed by an aux loss
  View<float, 2> aux_slope = {};
  View<double, 1> measures = {};      // acc (kRouterMeasures)   adds those of this call; optional
  View<int64_t, 1> counts = {};       // acc (E)      assignments of the step; needed by kStep
  View<int32_t, 2> count_partial;     // tmp (router_pieces(N, settings), E)
  View<float, 2> share_partial = {};  // tmp (router_pieces(N, settings), E)   with an aux loss
  // tmp (router_pieces(N, settings), kRouterMeasures)   with measures
  View<double, 2> measure_partial = {};
  View<const float, 2> logits;     // in  (N, E)
  View<const float, 1> bias = {};  // in  (E)      optional
  RouterSettings settings;
};

// kAuto computes only the chosen experts, with zeros elsewhere, if router_backward_is_sparse;
// kDense always computes all E.
enum class RouterPath { kAuto, kDense };

// The gradient with respect to the logits, from dgate and from aux_weight * aux + z_weight * z.
// aux_weight = aux_alpha / MoE layers * the weight of this micro-batch in the step; z_weight
// likewise.
template <typename T>
struct RouterBackward {
  View<T, 2> dlogits = {};        // out (N, E)   this, dchosen, or both
  View<float, 2> dchosen = {};    // out (N, K)   the chosen experts' columns; sparse path only
  View<const float, 2> dgate;     // in  (N, K)
  View<const int32_t, 2> expert;  // in  (N, K)
  View<const float, 2> logits;    // in  (N, E)
  View<const float, 1> logsumexp = {};  // in  (N)      as in forward
  View<const float, 1> score_sum = {};  // in  (N)      as in forward
  View<const float, 2> aux_slope = {};  // in  (router_groups, E)   from forward; with aux_weight
  float aux_weight = 0.0f;
  float z_weight = 0.0f;
  RouterPath path = RouterPath::kAuto;
  RouterSettings settings;
};

// kSign          b -= u * (sign(load - 1/E) - mean_e sign(load - 1/E))
// kProportional  b -= u * (E load - 1), whose mean over the experts is 0
// then clamped to +-16; load = counts / sum of counts; u = rate, or rate times the mean of `lead`.
// Without assignments b does not change. Source: arXiv:2408.15664, whose error is in tokens and not
// relative to the mean load, and whose sign rule does not subtract the mean.
struct RouterBiasUpdate {
  View<float, 1> bias;               // acc (E)
  View<const int64_t, 1> counts;     // in  (E)   assignments of the whole step
  View<const int64_t, 1> lead = {};  // in  (kLeadSums)   optional
  float rate;
  BiasRule rule = BiasRule::kSign;
};

// Elements of a sum of leads. Integers, so that the order of the sum does not matter, within a
// launch or between ranks.
enum LeadSum {
  kLeadUnits,  // of 2^-32
  kLeadRows,
  kLeadSums
};

// A lead beyond [0, 64], or NaN, counts as the nearest end, or 0.
struct RouterLeadSum {
  View<int64_t, 1> sum;       // out (kLeadSums)
  View<const float, 1> lead;  // in  (N)   of RouterMargin
};

// margin = (s + b) of the last chosen expert - (s + b) of the best that is not chosen; lead = the
// same from the first chosen. Both are 0 if K = E. A probe for a few rows.
struct RouterMargin {
  View<float, 1> margin;           // out (N)
  View<float, 1> lead;             // out (N)
  View<const int32_t, 2> expert;   // in  (N, K)   from forward
  View<const float, 2> logits;     // in  (N, E)
  View<const float, 1> bias = {};  // in  (E)
  RouterSettings settings;
};

void router_forward(Exec on, const RouterForward& a);
template <typename T>
void router_backward(Exec on, const RouterBackward<T>& a);
void router_bias_update(Exec on, const RouterBiasUpdate& a);
void router_margin(Exec on, const RouterMargin& a);
void router_lead_sum(Exec on, const RouterLeadSum& a);

// Number of groups of tokens with their own aux value: the sequences with kSequence, else one.
int64_t router_groups(int64_t tokens, const RouterSettings& settings);
// Number of pieces, each with its partial sums: at most kRouterPieceTokens tokens of one group.
// They fix the order of the sums.
constexpr int64_t kRouterPieceTokens = 64;
int64_t router_pieces(int64_t tokens, const RouterSettings& settings);

// A lead in units of 2^-32.
constexpr int64_t lead_units(float lead) {
  const float bounded = lead >= 0 ? (lead <= 64 ? lead : 64) : 0;
  return static_cast<int64_t>(static_cast<double>(bounded) * 0x1p32);
}
// The mean lead of a sum; 0 of no rows.
constexpr double mean_lead(int64_t units, int64_t rows) {
  return rows == 0 ? 0 : static_cast<double>(units) * 0x1p-32 / static_cast<double>(rows);
}

// True if only the chosen logits have gradient: normalised gates (or sigmoid), no z, no kSwitch.
template <typename T>
bool router_backward_is_sparse(const RouterBackward<T>& a) {
  const bool all_probabilities =
      a.settings.score == RouterScore::kSoftmax && a.settings.normalize == NormalizeGates::kNo;
  const bool switch_aux = a.settings.aux == RouterAux::kSwitch && a.aux_weight != 0.0f;
  return !all_probabilities && !switch_aux && a.z_weight == 0.0f;
}

inline Cost router_forward_cost(const RouterForward& a) {
  return {.bytes = view_bytes(a.logits, a.expert, a.gate, a.logsumexp, a.score_sum, a.aux_slope,
                              a.bias) +
                   2 * view_bytes(a.measures, a.counts),
          .flops = 10.0 * double(a.logits.size())};
}
// The sparse path reads a logit for each gate, and none of the sums over all experts.
template <typename T>
Cost router_backward_cost(const RouterBackward<T>& a) {
  const bool sparse = a.path == RouterPath::kAuto && router_backward_is_sparse(a);
  const double slopes = a.aux_weight != 0.0f ? view_bytes(a.aux_slope) : 0;
  return {.bytes = (sparse ? view_bytes(a.dgate) : view_bytes(a.logits, a.logsumexp, a.score_sum)) +
                   slopes + view_bytes(a.dgate, a.expert, a.dlogits, a.dchosen),
          .flops = 10.0 * double(a.logits.size())};
}
inline Cost router_bias_update_cost(const RouterBiasUpdate& a) {
  return {.bytes = view_bytes(a.counts, a.lead) + 2 * view_bytes(a.bias),
          .flops = 4.0 * double(a.bias.size())};
}
inline Cost router_lead_sum_cost(const RouterLeadSum& a) {
  return {.bytes = view_bytes(a.sum, a.lead), .flops = 2.0 * double(a.lead.size())};
}
inline Cost router_margin_cost(const RouterMargin& a) {
  return {.bytes = view_bytes(a.margin, a.lead, a.expert, a.logits, a.bias),
          .flops = 5.0 * double(a.logits.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (router.cu,
// router/backward.cu).
namespace gpu {
void router_backward(Exec on, const RouterBackward<float>& a);
void router_backward(Exec on, const RouterBackward<bf16>& a);
void router_forward(Exec on, const RouterForward& a);
void router_bias_update(Exec on, const RouterBiasUpdate& a);
void router_margin(Exec on, const RouterMargin& a);
void router_lead_sum(Exec on, const RouterLeadSum& a);
// UserError if a router of so many experts, k of which a token takes, does not fit into the shared
// memory that a block of the GPU may have.
void require_router_room(int64_t experts, int64_t k, int64_t shared_bytes);
}  // namespace gpu

}  // namespace assay
