#include "ops/router.h"

#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/router/cpu_row.h"
#include "ops/router/cpu_top_k.h"
#include "ops/router/gpu_registers.h"
#include "ops/router/gpu_room.h"

namespace assay {

using namespace router_row;

namespace {

constexpr int64_t kBlock = 4096;  // experts whose keys are on the stack at once

int64_t group_rows(int64_t tokens, const RouterSettings& s) {
  return s.scope == AuxScope::kSequence && s.sequence > 0 ? s.sequence : tokens;
}
int64_t pieces_per_group(int64_t tokens, const RouterSettings& s) {
  return ceil_div(group_rows(tokens, s), kPieceRows);
}

// share[e] += s_e / sum s, for all experts: softmax probability or normalised sigmoid score.
void add_shares(const RouterForward& a, const float* row, float lse, float score_sum,
                float* share) {
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float scale = a.settings.route_scale, inverse = 1.0f / score_sum;
  for_vectors(row, a.logits.dim[1], [&](int64_t begin, int64_t n, f32x16 z) {
    const f32x16 q = is_sigmoid ? sigmoid(scale * z) * inverse : exp_fast(z - lse);
    const f32x16 sum = beside(share, begin, n) + q;
    n == kVector ? store(share + begin, sum) : store_part(share + begin, n, sum);
  });
}

// Fills `best`. Returns the sum of the sigmoid scores if a.score_sum is given.
float select(const RouterForward& a, const float* row, float lse, TopK& best) {
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float scale = a.settings.route_scale;
  const int64_t experts = a.logits.dim[1];
  f32x16 sum{};
  if (a.bias.empty()) {
    best.add(row, experts, 0);
    if (is_sigmoid && !a.score_sum.empty()) {
      for_vectors(row, experts, [&](int64_t, int64_t, f32x16 z) { sum += sigmoid(scale * z); });
    }
    return horizontal_sum(sum);
  }
  float key[kBlock];
  for (int64_t begin = 0; begin < experts; begin += kBlock) {
    const int64_t count = std::min(kBlock, experts - begin);
    for_vectors(row + begin, count, [&](int64_t e, int64_t n, f32x16 z) {
      const f32x16 score = is_sigmoid ? sigmoid(scale * z) : exp_fast(z - lse);
      sum += score;
      store(key + e, score + beside(a.bias.data + begin, e, n));
    });
    best.add(key, count, int32_t(begin));
  }
  return horizontal_sum(sum);
}

void forward_token(const RouterForward& a, int64_t t, int32_t* count, float* share,
                   double* measure) {
  const RouterSettings& s = a.settings;
  const int64_t experts = a.logits.dim[1], k = a.expert.dim[1];
  const float* row = a.logits.row(t);

  float lse = 0;
  if (!a.logsumexp.empty()) a.logsumexp[t] = lse = logsumexp(row, experts);
  TopK best(k);
  const float score_sum = sum_or_smallest(select(a, row, lse, best));
  if (!a.score_sum.empty()) a.score_sum[t] = score_sum;

  int32_t* expert = a.expert.row(t);
  std::copy(best.ids(), best.ids() + k, expert);
  for (int64_t i = 0; i < k; ++i) ++count[expert[i]];

  const Chosen chosen(row, expert, k, s);
  float* gate = a.gate.row(t);
  for (int64_t i = 0; i < k; ++i) {
    if (s.normalize == NormalizeGates::kYes) {
      gate[i] = s.gate_scale * chosen.ghat[i];
    } else if (s.score == RouterScore::kSigmoid) {
      gate[i] = s.gate_scale * chosen.score[i];
    } else {
      gate[i] = s.gate_scale * exp_fast(row[expert[i]] - lse);
    }
  }
  if (s.aux == RouterAux::kSwitch) add_shares(a, row, lse, score_sum, share);
  if (s.aux == RouterAux::kGates) {
    for (int64_t i = 0; i < k; ++i) share[expert[i]] += chosen.ghat[i];
  }
  if (measure != nullptr) {
    measure[kZValue] += double(lse) * double(lse);
    for (int64_t i = 0; i < k; ++i) {
      if (chosen.ghat[i] > 0) measure[kGateEntropy] -= chosen.ghat[i] * std::log(chosen.ghat[i]);
    }
  }
}

// Sums the pieces of every group into the group's first piece, and all groups into counts.
void reduce_pieces(Exec on, const RouterForward& a) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1];
  const int64_t groups = router_groups(tokens, a.settings);
  const int64_t per_group = pieces_per_group(tokens, a.settings);
  parallel_ranges(on, experts, 512, [&](int64_t begin, int64_t end) {
    for (int64_t g = 0; g < groups; ++g) {
      int32_t* count = a.count_partial.row(g * per_group);
      float* share = a.share_partial.empty() ? nullptr : a.share_partial.row(g * per_group);
      for (int64_t p = 1; p < per_group; ++p) {
        const int32_t* other = a.count_partial.row(g * per_group + p);
#pragma omp simd
        for (int64_t e = begin; e < end; ++e) count[e] += other[e];
        if (share == nullptr) continue;
        const float* other_share = a.share_partial.row(g * per_group + p);
#pragma omp simd
        for (int64_t e = begin; e < end; ++e) share[e] += other_share[e];
      }
      if (a.counts.empty()) continue;
      for (int64_t e = begin; e < end; ++e) a.counts[e] += count[e];
    }
  });
}

// Computes aux_slope of one group from its summed shares and the counts. Returns its aux value.
double finish_aux(const RouterForward& a, int64_t group) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1];
  const int64_t first_piece = group * pieces_per_group(tokens, a.settings);
  const int32_t* count = a.count_partial.row(first_piece);
  const float* share = a.share_partial.row(first_piece);
  const bool step = a.settings.scope == AuxScope::kStep;

  double assignments = 0, shares = 0, product = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const double n = step ? double(a.counts[e]) : double(count[e]);
    assignments += n;
    shares += share[e];
    product += n * share[e];
  }
  const bool gates = a.settings.aux == RouterAux::kGates;
  if (!gates) shares = double(group_rows(tokens, a.settings));  // P is a mean over tokens
  const double scale = double(experts) / assignments;           // scale * n = E f
  const double aux = shares > 0 ? scale * product / shares : 0;
  const double mean = gates ? aux : 0;
  const double weight = shares > 0 ? 1 / (shares * double(a.aux_slope.dim[0])) : 0;
  float* slope = a.aux_slope.row(group);
  for (int64_t e = 0; e < experts; ++e) {
    const double n = step ? double(a.counts[e]) : double(count[e]);
    slope[e] = static_cast<float>((scale * n - mean) * weight);
  }
  return aux;
}

}  // namespace

int64_t router_groups(int64_t tokens, const RouterSettings& settings) {
  return tokens == 0 ? 0 : tokens / group_rows(tokens, settings);
}
int64_t router_pieces(int64_t tokens, const RouterSettings& settings) {
  return router_groups(tokens, settings) * pieces_per_group(tokens, settings);
}

namespace cpu {

void router_forward(Exec on, const RouterForward& a) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1];
  const int64_t rows = group_rows(tokens, a.settings);
  const int64_t per_group = pieces_per_group(tokens, a.settings);
  parallel_for(on, router_pieces(tokens, a.settings), [&](int64_t p) {
    const int64_t group = p / per_group;
    const int64_t begin = group * rows + (p % per_group) * kPieceRows;
    const int64_t end = std::min(begin + kPieceRows, (group + 1) * rows);
    int32_t* count = a.count_partial.row(p);
    std::fill(count, count + experts, 0);
    float* share = a.share_partial.empty() ? nullptr : a.share_partial.row(p);
    if (share != nullptr) std::fill(share, share + experts, 0.0f);
    double* measure = a.measures.empty() ? nullptr : a.measure_partial.row(p);
    if (measure != nullptr) std::fill(measure, measure + kRouterMeasures, 0.0);
    for (int64_t t = begin; t < end; ++t) forward_token(a, t, count, share, measure);
  });
  reduce_pieces(on, a);

  double aux = 0;
  if (a.settings.aux != RouterAux::kNone) {
    for (int64_t g = 0; g < a.aux_slope.dim[0]; ++g) aux += finish_aux(a, g);
    aux /= double(a.aux_slope.dim[0]);
  }
  if (a.measures.empty()) return;
  double sum[kRouterMeasures] = {};
  for (int64_t p = 0; p < router_pieces(tokens, a.settings); ++p) {
    for (int m = 0; m < kRouterMeasures; ++m) sum[m] += a.measure_partial.at(p, m);
  }
  for (int m = 0; m < kRouterMeasures; ++m) {
    a.measures[m] += m == kAuxValue ? aux : sum[m] / double(tokens);
  }
}

void router_bias_update(Exec, const RouterBiasUpdate& a) {
  const int64_t experts = a.bias.dim[0];
  int64_t total = 0, signs = 0;
  for (int64_t e = 0; e < experts; ++e) total += a.counts[e];
  if (total == 0) return;
  // load > 1/E in integers: count * E > total.
  const auto sign = [&](int64_t e) {
    const int64_t excess = a.counts[e] * experts - total;
    return (excess > 0) - (excess < 0);
  };
  for (int64_t e = 0; e < experts; ++e) signs += sign(e);
  const double mean = double(signs) / double(experts);
  const double rate =
      double(a.rate) * (a.lead.empty() ? 1 : mean_lead(a.lead[kLeadUnits], a.lead[kLeadRows]));
  for (int64_t e = 0; e < experts; ++e) {
    const double over = a.rule == BiasRule::kSign
                            ? sign(e) - mean
                            : double(a.counts[e] * experts - total) / double(total);
    a.bias[e] = static_cast<float>(std::clamp(double(a.bias[e]) - rate * over, -16.0, 16.0));
  }
}

void router_lead_sum(Exec, const RouterLeadSum& a) {
  a.sum[kLeadUnits] = 0;
  a.sum[kLeadRows] = a.lead.dim[0];
  for (int64_t t = 0; t < a.lead.dim[0]; ++t) a.sum[kLeadUnits] += lead_units(a.lead[t]);
}

void router_margin(Exec on, const RouterMargin& a) {
  const int64_t experts = a.logits.dim[1], k = a.expert.dim[1];
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float scale = a.settings.route_scale;
  parallel_for(on, a.logits.dim[0], [&](int64_t t) {
    if (k == experts) {
      a.margin[t] = 0;
      a.lead[t] = 0;
      return;
    }
    const float* z = a.logits.row(t);
    const int32_t* id = a.expert.row(t);
    const float lse = is_sigmoid ? 0 : logsumexp(z, experts);
    float key[kBlock];
    float first = 0, last = 0, best = -kInfinity;  // keys of the chosen; of the others
    for (int64_t begin = 0; begin < experts; begin += kBlock) {
      const int64_t count = std::min(kBlock, experts - begin);
      for_vectors(z + begin, count, [&](int64_t e, int64_t n, f32x16 v) {
        const f32x16 score = is_sigmoid ? sigmoid(scale * v) : exp_fast(v - lse);
        const float* bias = a.bias.data + begin;
        store(key + e, a.bias.empty() ? score : score + beside(bias, e, n));
      });
      for (int64_t i = 0; i < k; ++i) {
        if (id[i] < begin || id[i] >= begin + count) continue;
        if (i == 0) first = key[id[i] - begin];
        if (i == k - 1) last = key[id[i] - begin];
        key[id[i] - begin] = -kInfinity;
      }
      f32x16 largest = broadcast(-kInfinity);
      for_vectors(key, count,
                  [&](int64_t, int64_t, f32x16 v) { largest = select(v > largest, v, largest); });
      best = std::max(best, horizontal_max(largest));
    }
    a.margin[t] = last - best;
    a.lead[t] = first - best;
  });
}

}  // namespace cpu

void router_forward(Exec on, const RouterForward& a) {
  const ProfileScope timed(on, "router_forward", router_forward_cost(a));
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1], k = a.expert.dim[1];
  const RouterSettings& s = a.settings;
  CHECK(tokens >= 1 && a.expert.dim[0] == tokens && a.gate.dim[0] == tokens && a.gate.dim[1] == k &&
            k >= 1 && k <= experts && k <= kMaxTopK,
        "router_forward: %s; K is at most %ld",
        shapes("logits", a.logits, "expert", a.expert, "gate", a.gate).c_str(), long(kMaxTopK));
  CHECK(a.bias.empty() || a.bias.dim[0] == experts, "router_forward: bias (%ld) for %ld experts",
        long(a.bias.dim[0]), long(experts));
  CHECK(s.score == RouterScore::kSoftmax || s.route_scale > 0,
        "router_forward: route_scale %g, must be > 0", double(s.route_scale));
  CHECK(s.scope != AuxScope::kSequence || (s.sequence > 0 && tokens % s.sequence == 0),
        "router_forward: %ld tokens in sequences of %ld", long(tokens), long(s.sequence));
  const int64_t pieces = router_pieces(tokens, s);
  CHECK(a.count_partial.dim[0] >= pieces && a.count_partial.dim[1] == experts,
        "router_forward: count_partial (%ld, %ld) for %ld pieces of %ld",
        long(a.count_partial.dim[0]), long(a.count_partial.dim[1]), long(pieces), long(experts));
  CHECK(a.measures.empty() ||
            (a.measures.dim[0] == kRouterMeasures && a.measure_partial.dim[0] >= pieces &&
             a.measure_partial.dim[1] == kRouterMeasures),
        "router_forward: %s, %ld pieces",
        shapes("measures", a.measures, "measure_partial", a.measure_partial).c_str(), long(pieces));
  const bool softmax = s.score == RouterScore::kSoftmax;
  const bool needs_lse = softmax && (s.aux == RouterAux::kSwitch || !a.bias.empty() ||
                                     s.normalize == NormalizeGates::kNo);
  CHECK(!needs_lse || a.logsumexp.dim[0] == tokens,
        "router_forward: softmax with a bias, with switch or without normalised gates: logsumexp "
        "(%ld) for %ld tokens",
        long(a.logsumexp.dim[0]), long(tokens));
  if (s.aux != RouterAux::kNone) {
    CHECK(a.aux_slope.dim[0] == router_groups(tokens, s) && a.aux_slope.dim[1] == experts &&
              a.share_partial.dim[0] >= pieces && a.share_partial.dim[1] == experts,
          "router_forward: %s, %ld groups, %ld pieces",
          shapes("aux_slope", a.aux_slope, "share_partial", a.share_partial).c_str(),
          long(router_groups(tokens, s)), long(pieces));
    CHECK(s.scope != AuxScope::kStep || a.counts.dim[0] == experts,
          "router_forward: scope step: counts (%ld) for %ld experts", long(a.counts.dim[0]),
          long(experts));
    CHECK(softmax || s.aux != RouterAux::kSwitch || a.score_sum.dim[0] == tokens,
          "router_forward: sigmoid with switch: score_sum (%ld) for %ld tokens",
          long(a.score_sum.dim[0]), long(tokens));
  }
  if (on.gpu) return gpu::router_forward(on, a);
  cpu::router_forward(on, a);
}

void router_bias_update(Exec on, const RouterBiasUpdate& a) {
  const ProfileScope timed(on, "router_bias_update", router_bias_update_cost(a));
  CHECK(a.bias.dim[0] == a.counts.dim[0], "router_bias_update: bias (%ld), counts (%ld)",
        long(a.bias.dim[0]), long(a.counts.dim[0]));
  CHECK(a.lead.empty() || a.lead.dim[0] == kLeadSums, "router_bias_update: lead (%ld)",
        long(a.lead.dim[0]));
  if (on.gpu) return gpu::router_bias_update(on, a);
  cpu::router_bias_update(on, a);
}

void router_margin(Exec on, const RouterMargin& a) {
  const ProfileScope timed(on, "router_margin", router_margin_cost(a));
  CHECK(a.margin.dim[0] == a.logits.dim[0] && a.lead.dim[0] == a.logits.dim[0] &&
            a.expert.dim[0] == a.logits.dim[0] && a.expert.dim[1] <= a.logits.dim[1],
        "router_margin: %s",
        shapes("margin", a.margin, "lead", a.lead, "expert", a.expert, "logits", a.logits).c_str());
  if (on.gpu) return gpu::router_margin(on, a);
  cpu::router_margin(on, a);
}

void router_lead_sum(Exec on, const RouterLeadSum& a) {
  const ProfileScope timed(on, "router_lead_sum", router_lead_sum_cost(a));
  CHECK(a.sum.dim[0] == kLeadSums, "router_lead_sum: sum (%ld)", long(a.sum.dim[0]));
  if (on.gpu) return gpu::router_lead_sum(on, a);
  cpu::router_lead_sum(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(router_backward, RouterBackward<float>)
ASSAY_GPU_ABSENT(router_backward, RouterBackward<bf16>)
ASSAY_GPU_ABSENT(router_forward, RouterForward)
ASSAY_GPU_ABSENT(router_bias_update, RouterBiasUpdate)
ASSAY_GPU_ABSENT(router_margin, RouterMargin)
ASSAY_GPU_ABSENT(router_lead_sum, RouterLeadSum)

void require_router_room(int64_t experts, int64_t k, int64_t shared_bytes) {
  using namespace router;
  if (forward_fits_registers(experts, k) || warps_that_fit(experts, k, shared_bytes) > 0) return;
  throw UserError(
      strprintf("a router of %ld experts does not fit into the shared memory of this GPU",
                long(experts)),
      strprintf("use fewer experts (%ld fit)", long((shared_bytes - kFixedBytes) / 12000 * 1000)));
}
}  // namespace gpu

}  // namespace assay
