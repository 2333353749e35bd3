// The router of the scalar model, with both of its losses.
#pragma once

#include "engine/config/config.h"
#include "tests/model/scalar_blocks.h"

namespace assay::ref {

template <typename S>
struct ScalarRouting {
  std::vector<std::vector<size_t>> expert;  // (N, K) in descending order of score + bias
  Rows<S> gate;                             // (N, K)
  S aux = S(0.0);                           // without its weight
  S z = S(0.0);                             // mean logsumexp^2
};

// The ids of the K largest; ties: the lower id.
inline std::vector<size_t> scalar_top_k(const std::vector<double>& value, size_t top_k) {
  std::vector<size_t> id(value.size());
  std::iota(id.begin(), id.end(), size_t{0});
  std::stable_sort(id.begin(), id.end(), [&](size_t a, size_t b) { return value[a] > value[b]; });
  id.resize(top_k);
  return id;
}

// Over rows [begin, end): E sum_e f_e P_e (switch) or E sum_e f_e I_e / sum I (gates), where f_e is
// the share of the assignments.
template <typename S>
S scalar_aux(RouterAux kind, const Rows<S>& share, const Rows<S>& normalised,
             const ScalarRouting<S>& routing, size_t begin, size_t end) {
  const size_t experts = share[0].size();
  std::vector<double> assigned(experts, 0.0);
  std::vector<S> importance(experts, S(0.0));
  double assignments = 0;
  S sum(0.0);
  for (size_t n = begin; n < end; ++n) {
    for (size_t k = 0; k < routing.expert[n].size(); ++k) {
      const size_t e = routing.expert[n][k];
      assigned[e] += 1, assignments += 1;
      if (kind == RouterAux::kGates) importance[e] += normalised[n][k], sum += normalised[n][k];
    }
    if (kind != RouterAux::kSwitch) continue;
    for (size_t e = 0; e < experts; ++e) importance[e] += share[n][e];
    sum += S(1.0);
  }
  S loss(0.0);
  for (size_t e = 0; e < experts; ++e) loss += S(assigned[e] / assignments) * importance[e] / sum;
  return S(static_cast<double>(experts)) * loss;
}

// x (N, C) is the normed input. One call is one step, so aux_scope `step` equals `micro`.
template <typename S>
ScalarRouting<S> scalar_router(const Rows<S>& x, const std::vector<S>& weight,
                               const std::vector<S>& bias, const MoeConfig& moe, size_t sequence) {
  const RouterConfig& r = moe.router;
  const size_t experts = static_cast<size_t>(moe.experts), top_k = static_cast<size_t>(moe.top_k);
  const bool sigmoid = r.score == RouterScore::kSigmoid;
  const Rows<S> logits = scalar_linear(x, weight, experts);

  ScalarRouting<S> routing;
  Rows<S> share, normalised;  // s / sum of all s (N, E); s / sum of the chosen s (N, K)
  for (const std::vector<S>& z : logits) {
    std::vector<S> score(experts);
    if (!sigmoid) score = scalar_softmax(z);
    std::vector<double> selection(experts);
    S all(0.0);
    for (size_t e = 0; e < experts; ++e) {
      if (sigmoid) score[e] = scalar_sigmoid(S(r.route_scale) * z[e]);
      selection[e] = real_part(score[e]) + real_part(bias[e]);
      all += score[e];
    }
    const std::vector<size_t> chosen = scalar_top_k(selection, top_k);
    S sum(0.0);
    for (const size_t e : chosen) sum += score[e];
    if (sigmoid && real_part(sum) < 1e-12) sum = S(1e-12);

    std::vector<S> gate, fraction;
    for (const size_t e : chosen) {
      fraction.push_back(score[e] / sum);
      const bool plain = !r.normalize_gates;
      gate.push_back(S(r.gate_scale) * (plain ? score[e] : fraction.back()));
    }
    for (S& s : score) s = s / all;
    share.push_back(score);
    normalised.push_back(fraction);
    routing.expert.push_back(chosen);
    routing.gate.push_back(gate);
    const S lse = scalar_logsumexp(z);
    routing.z += lse * lse / S(static_cast<double>(logits.size()));
  }
  if (r.aux == RouterAux::kNone) return routing;
  const size_t group = r.aux_scope == AuxScope::kSequence ? sequence : x.size();
  const double groups = static_cast<double>(x.size() / group);
  for (size_t at = 0; at < x.size(); at += group)
    routing.aux += scalar_aux(r.aux, share, normalised, routing, at, at + group) / S(groups);
  return routing;
}

}  // namespace assay::ref
