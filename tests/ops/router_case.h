// Shared by the cases of forward and backward: the settings, the buffers of a forward call, and the
// reference problem with the experts that the op chose.
#pragma once

#include "base/check.h"
#include "tests/ops/op_case.h"
#include "tests/ref/router.h"
#include "tests/tolerance.h"

namespace assay {

enum class Bias { kNone, kRandom };
enum class ZLoss { kOff, kOn };

struct RouterShape {
  int64_t tokens, experts, k;
  RouterSettings settings;
  Bias bias = Bias::kNone;
  ZLoss z = ZLoss::kOff;
  double spread = 1.0, mean = 0.0;  // of the logits
};

inline std::string router_name(const RouterShape& s) {
  const RouterSettings& r = s.settings;
  std::string name = strprintf(" N=%ld E=%ld K=%ld", long(s.tokens), long(s.experts), long(s.k));
  name += r.score == RouterScore::kSigmoid ? " sigmoid" : " softmax";
  if (r.normalize == NormalizeGates::kNo) name += " plain";
  if (r.aux != RouterAux::kNone) {
    name += r.aux == RouterAux::kSwitch ? " switch" : " gates";
    name += r.scope == AuxScope::kMicro ? "" : r.scope == AuxScope::kStep ? "-step" : "-sequence";
  }
  if (s.bias == Bias::kRandom) name += " bias";
  if (s.z == ZLoss::kOn) name += " z";
  if (s.mean != 0) name += strprintf(" mean %g", s.mean);
  return name;
}

// The value of each of RouterForward::measures before the call, which adds to it.
inline constexpr double kMeasuresStart = 0.25;

inline RouterForward router_buffers(Workbench& bench, const RouterShape& s) {
  const RouterSettings& r = s.settings;
  const int64_t n = s.tokens, experts = s.experts, pieces = router_pieces(n, r);
  const bool softmax = r.score == RouterScore::kSoftmax, aux = r.aux != RouterAux::kNone;
  RouterForward a{
      .expert = bench.out<int32_t, 2>("expert", {n, s.k}),
      .gate = bench.out<float, 2>("gate", {n, s.k}),
      .measures = bench.acc<double, 1>("measures", {kRouterMeasures}, normal(0.0, kMeasuresStart)),
      .counts = bench.acc<int64_t, 1>("counts", {experts}),
      .count_partial = bench.tmp<int32_t, 2>("count_partial", {pieces, experts}),
      .measure_partial = bench.tmp<double, 2>("measure_partial", {pieces, kRouterMeasures}),
      .logits = bench.in<float, 2>("logits", {n, experts}, normal(s.spread, s.mean)),
      .settings = r};
  if (softmax || s.z == ZLoss::kOn) a.logsumexp = bench.out<float, 1>("logsumexp", {n});
  if (!softmax && r.aux == RouterAux::kSwitch) {
    a.score_sum = bench.out<float, 1>("score_sum", {n});
  }
  if (aux) {
    a.aux_slope = bench.out<float, 2>("aux_slope", {router_groups(n, r), experts});
    a.share_partial = bench.tmp<float, 2>("share_partial", {pieces, experts});
  }
  // The bias of softmax is of the order of the probabilities, 1 / E.
  if (s.bias == Bias::kRandom) {
    a.bias = bench.in<float, 1>("bias", {experts}, normal(softmax ? 1.0 / double(experts) : 0.2));
  }
  for (int64_t e = 0; e < experts; ++e) a.counts[e] = 3 + e % 5;
  bench.commit();
  return a;
}

// What forward moves and the ops that follow it do not.
inline void leave_out_of_forward(Workbench& bench, const RouterForward& f) {
  bench.must_move(f.gate, 0);
  bench.must_move(f.measures, 0);
  bench.must_move(f.counts, 0);
}

inline ref::RouterProblem router_problem(const RouterForward& a,
                                         const std::vector<double>& counts_before) {
  ref::RouterProblem p{a.settings, a.logits.dim[0], a.logits.dim[1], a.expert.dim[1]};
  p.counts_before = counts_before;
  for (int64_t i = 0; i < a.expert.size(); ++i) p.expert.push_back(a.expert[i]);
  return p;
}

// Number of float roundings from a logit to a score, as the count of tol::elementary: a few, plus
// the error of exp's argument, which is relative to its magnitude.
inline double score_roundings(double largest_logit, const RouterSettings& settings) {
  return 2 + largest_logit / 4 * std::max(1.0f, settings.route_scale);
}
inline double score_roundings(const RouterForward& a) {
  double largest = 0;
  for (int64_t i = 0; i < a.logits.size(); ++i) {
    largest = std::max(largest, std::abs(double(a.logits[i])));
  }
  return score_roundings(largest, a.settings);
}

}  // namespace assay
