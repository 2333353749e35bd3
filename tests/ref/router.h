// Scalar reference of ops/router.h, every Jacobian in full. Its gradient is proved by complex step
// in tests/ops/router_cases.cpp; the selection branches on the real part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ops/router.h"
#include "tests/ref/complex_step.h"

namespace assay::ref {

struct RouterProblem {
  RouterSettings settings;
  int64_t tokens, experts, k;
  double aux_weight = 0, z_weight = 0;
  std::vector<double> counts_before = {};  // (E)      with AuxScope::kStep
  std::vector<int64_t> expert = {};        // (N, K)   see select_experts

  int64_t groups() const { return router_groups(tokens, settings); }
  int64_t group_of(int64_t t) const { return t / (tokens / groups()); }
  int64_t chosen(int64_t t, int64_t i) const { return expert[size_t(t * k + i)]; }
  // (groups, E): each expert's share of the assignments.
  std::vector<double> load() const {
    const bool step = settings.scope == AuxScope::kStep;
    std::vector<double> n(size_t(groups() * experts), 0.0);
    if (step) n = counts_before;
    for (int64_t a = 0; a < tokens * k; ++a) {
      n[size_t(group_of(a / k) * experts + expert[size_t(a)])] += 1;
    }
    for (int64_t g = 0; g < groups(); ++g) {
      const auto row = n.begin() + g * experts;
      const double total = std::accumulate(row, row + experts, 0.0);
      std::for_each(row, row + experts, [&](double& x) { x /= total; });
    }
    return n;
  }
};

template <typename S>
std::vector<S> softmax(const std::vector<S>& z) {
  double largest = -INFINITY;
  for (const S& x : z) largest = std::max(largest, real_part(x));
  std::vector<S> p;
  S sum = 0;
  for (const S& x : z) sum += p.emplace_back(std::exp(x - largest));
  for (S& x : p) x /= sum;
  return p;
}

template <typename S>
std::vector<S> scores(const RouterSettings& settings, const std::vector<S>& z) {
  if (settings.score == RouterScore::kSoftmax) return softmax(z);
  std::vector<S> s;
  for (const S& x : z) s.push_back(S(1) / (S(1) + std::exp(-double(settings.route_scale) * x)));
  return s;
}

// The ids of the K largest keys (score + bias): ties go to the lower id, NaN comes last.
inline std::vector<int64_t> select_experts(const std::vector<double>& key, int64_t k) {
  std::vector<int64_t> id(key.size());
  std::iota(id.begin(), id.end(), 0);
  std::stable_sort(id.begin(), id.end(), [&](int64_t a, int64_t b) {
    const double x = key[size_t(a)], y = key[size_t(b)];
    return x > y || (std::isnan(y) && !std::isnan(x));
  });
  id.resize(size_t(k));
  return id;
}

template <typename S>
struct Router {
  std::vector<S> gate, ghat;            // (N, K)
  std::vector<S> logsumexp, score_sum;  // (N)
  std::vector<S> aux_of_group;          // (groups)
  std::vector<S> share;                 // (groups)   sum of ghat
  S aux = 0, z = 0;

  static std::vector<S> row(const std::vector<S>& z, int64_t t, int64_t experts) {
    return {z.begin() + t * experts, z.begin() + (t + 1) * experts};
  }
  static S chosen_sum(const RouterProblem& p, const std::vector<S>& s, int64_t t) {
    S sum = 0;
    for (int64_t i = 0; i < p.k; ++i) sum += s[size_t(p.chosen(t, i))];
    return sum;
  }
  static bool clamped(const RouterProblem& p, const S& sum) {
    return p.settings.score == RouterScore::kSigmoid && real_part(sum) < 1e-12;
  }

  void forward(const RouterProblem& p, const std::vector<S>& logits) {
    const auto load = p.load();
    const double group_tokens = double(p.tokens / p.groups());
    aux_of_group.assign(size_t(p.groups()), S(0));
    share.assign(size_t(p.groups()), S(0));
    for (int64_t t = 0; t < p.tokens; ++t) {
      const auto zt = row(logits, t, p.experts);
      const auto s = scores(p.settings, zt);
      const size_t g = size_t(p.group_of(t));
      S sum = chosen_sum(p, s, t), all = 0, exp_sum = 0;
      if (clamped(p, sum)) sum = 1e-12;
      for (const S& x : s) all += x;
      if (clamped(p, all)) all = 1e-12;
      for (const S& x : zt) exp_sum += std::exp(x);
      score_sum.push_back(all);
      logsumexp.push_back(std::log(exp_sum));
      z += logsumexp.back() * logsumexp.back() / double(p.tokens);
      for (int64_t i = 0; i < p.k; ++i) {
        const S si = s[size_t(p.chosen(t, i))];
        ghat.push_back(si / sum);
        const bool normalize = p.settings.normalize == NormalizeGates::kYes;
        gate.push_back(double(p.settings.gate_scale) * (normalize ? ghat.back() : si));
        share[g] += ghat.back();
        if (p.settings.aux == RouterAux::kGates) {
          aux_of_group[g] += ghat.back() * load[g * size_t(p.experts) + size_t(p.chosen(t, i))];
        }
      }
      if (p.settings.aux != RouterAux::kSwitch) continue;
      for (int64_t e = 0; e < p.experts; ++e) {
        aux_of_group[g] += s[size_t(e)] / all * load[g * size_t(p.experts) + size_t(e)];
      }
    }
    for (size_t g = 0; g < share.size(); ++g) {
      const S count = p.settings.aux == RouterAux::kGates ? share[g] : S(group_tokens);
      aux_of_group[g] *= double(p.experts) / count;
      aux += aux_of_group[g] / double(p.groups());
    }
  }

  // (groups, E): d aux / d share (ghat or s / sum s) of one token of the group.
  std::vector<S> aux_slope(const RouterProblem& p) const {
    std::vector<S> slope(size_t(p.groups() * p.experts));
    const auto load = p.load();
    const bool gates = p.settings.aux == RouterAux::kGates;
    for (size_t i = 0; i < slope.size(); ++i) {
      const size_t g = i / size_t(p.experts);
      const S count = gates ? share[g] : S(double(p.tokens / p.groups()));
      slope[i] = (double(p.experts) * load[i] - (gates ? aux_of_group[g] : S(0))) /
                 (count * double(p.groups()));
    }
    return slope;
  }

  // Appends dlogits and, for each, `size`: the sum of the absolute values of its terms.
  void backward(const RouterProblem& p, const std::vector<S>& logits, const std::vector<S>& dgate,
                std::vector<S>& dlogits, std::vector<double>& size) const {
    backward(p, aux_slope(p), logits, dgate, dlogits, size);
  }
  // slope: aux_slope, e.g. of all tokens where p has some.
  void backward(const RouterProblem& p, const std::vector<S>& slope, const std::vector<S>& logits,
                const std::vector<S>& dgate, std::vector<S>& dlogits,
                std::vector<double>& size) const {
    const bool normalize = p.settings.normalize == NormalizeGates::kYes;
    const double gate_scale = double(p.settings.gate_scale);
    for (int64_t t = 0; t < p.tokens; ++t) {
      const auto zt = row(logits, t, p.experts);
      const auto s = scores(p.settings, zt);
      const auto soft = softmax(zt);
      const size_t first_slope = size_t(p.group_of(t) * p.experts);
      std::vector<S> ds(s.size(), S(0));
      std::vector<double> ds_size(s.size(), 0.0);
      // Backward through share_e = s_e / sum, with the sum over `ids`: ds_e = (dshare_e - sum_j
      // share_j dshare_j) / sum.
      const auto through_share = [&](const std::vector<int64_t>& ids, S sum, bool fixed_sum,
                                     const auto& dshare) {
        S mean = 0;
        double mean_size = 0;
        for (const int64_t j : ids) mean += s[size_t(j)] / sum * dshare(j);
        for (const int64_t j : ids) mean_size += std::abs(s[size_t(j)] / sum * dshare(j));
        for (const int64_t e : ids) {
          ds[size_t(e)] += (dshare(e) - (fixed_sum ? S(0) : mean)) / sum;
          ds_size[size_t(e)] += (std::abs(dshare(e)) + mean_size) / std::abs(sum);
        }
      };
      std::vector<int64_t> all(s.size());
      std::iota(all.begin(), all.end(), 0);
      const std::vector<int64_t> ids(p.expert.begin() + t * p.k, p.expert.begin() + (t + 1) * p.k);
      const S sum = chosen_sum(p, s, t);
      const bool fixed = clamped(p, sum);
      const auto dgate_of = [&](int64_t e) {
        return gate_scale *
               dgate[size_t(t * p.k + (std::find(ids.begin(), ids.end(), e) - ids.begin()))];
      };
      const auto daux = [&](int64_t e) { return p.aux_weight * slope[first_slope + size_t(e)]; };
      if (normalize) through_share(ids, fixed ? S(1e-12) : sum, fixed, dgate_of);
      if (!normalize) {
        for (const int64_t e : ids) {
          ds[size_t(e)] += dgate_of(e);
          ds_size[size_t(e)] += std::abs(dgate_of(e));
        }
      }
      if (p.settings.aux == RouterAux::kGates)
        through_share(ids, fixed ? S(1e-12) : sum, fixed, daux);
      if (p.settings.aux == RouterAux::kSwitch) {
        const S total = std::accumulate(s.begin(), s.end(), S(0));
        const bool floor = clamped(p, total);
        through_share(all, floor ? S(1e-12) : total, floor, daux);
      }
      S mean = 0;
      double mean_size = 0;
      for (size_t e = 0; e < s.size(); ++e) {
        mean += s[e] * ds[e];
        mean_size += std::abs(s[e]) * ds_size[e];
      }
      for (size_t e = 0; e < s.size(); ++e) {
        const bool sigmoid = p.settings.score == RouterScore::kSigmoid;
        const S slope_of_score = double(p.settings.route_scale) * s[e] * (S(1) - s[e]);
        const S through_z = p.z_weight * 2.0 / double(p.tokens) * logsumexp[size_t(t)] * soft[e];
        dlogits.push_back((sigmoid ? slope_of_score * ds[e] : s[e] * (ds[e] - mean)) + through_z);
        size.push_back((sigmoid ? std::abs(slope_of_score) * ds_size[e]
                                : std::abs(s[e]) * (ds_size[e] + mean_size)) +
                       std::abs(through_z));
      }
    }
  }
};

}  // namespace assay::ref
