#include "engine/telemetry/router_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"

namespace assay {

namespace {

// Gini coefficient of non-negative values: sum_i (2 i - n + 1) x_(i) / (n sum x), x ascending, i
// from 0.
double gini(View<const int64_t, 1> counts, double total) {
  std::vector<int64_t> sorted(counts.data, counts.data + counts.dim[0]);
  std::sort(sorted.begin(), sorted.end());
  const double n = double(sorted.size());
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) sum += (2 * double(i) - n + 1) * double(sorted[i]);
  return sum / (n * total);
}

// From so many assignments per expert on the normal distribution is within 0.1% of the sums over
// binomial counts.
constexpr double kSums = 64;

double tokens_of(double assignments, int64_t top_k) {
  return std::max(1.0, std::round(assignments / double(top_k)));
}

// The largest of so many independent normal numbers, on average.
double largest_normal(double of) {
  constexpr double kFrom = -9, kTo = 9, kStep = 1.0 / 128;
  double largest = kFrom;
  for (double z = kFrom + kStep / 2; z < kTo; z += kStep) {
    largest += kStep * (1 - std::pow(0.5 * std::erfc(-z / std::numbers::sqrt2), of));
  }
  return largest;
}

// The largest of so many independent binomial counts, on average.
double largest_binomial(double of, double draws, double share) {
  double chance = std::pow(1 - share, draws), up_to = 0, largest = 0;
  for (double k = 0; k < draws && (k <= draws * share || chance > 1e-18); ++k) {
    up_to += chance;
    largest += 1 - std::pow(std::min(1.0, up_to), of);
    chance *= (draws - k) / (k + 1) * share / (1 - share);
  }
  return largest;
}

}  // namespace

RouterStats router_stats(View<const int64_t, 1> counts, int64_t top_k) {
  const int64_t experts = counts.dim[0];
  CHECK(top_k >= 1 && top_k <= experts, "router_stats: top %ld of %ld experts", long(top_k),
        long(experts));
  const double e = double(experts), k = double(top_k);
  RouterStats s;
  s.cv_ceiling = 100 * std::sqrt((e - k) / k);
  s.max_load_ceiling = 1 / k;
  s.entropy_ceiling = std::log(e);
  for (int64_t i = 0; i < experts; ++i) s.assignments += double(counts[i]);
  if (s.cv_ceiling > 0) s.cv_norm = 0;
  if (s.entropy_ceiling > 0) s.entropy_norm = 0;
  if (s.assignments == 0) return s;

  double squares = 0, deviation = 0;
  int64_t largest = 0;
  for (int64_t i = 0; i < experts; ++i) {
    const double load = double(counts[i]) / s.assignments;
    squares += load * load;
    deviation += (load - 1 / e) * (load - 1 / e);
    largest = std::max(largest, counts[i]);
    if (counts[i] == 0) continue;
    s.entropy -= load * std::log(load);
    ++s.active;
  }
  s.cv = 100 * std::sqrt(deviation / e) * e;
  s.e_eff = std::exp(s.entropy);
  s.participation = 1 / squares;
  s.gini = gini(counts, s.assignments);
  s.cv_floor = 100 * std::sqrt((e - k) / s.assignments);
  if (s.cv_norm) s.cv_norm = s.cv / s.cv_ceiling;
  if (s.entropy_norm) s.entropy_norm = s.entropy / s.entropy_ceiling;
  s.max_load = double(largest) / s.assignments;
  s.max_load_norm = k * double(largest) / s.assignments;  // one rounding: 0.9 is exactly 0.9
  s.e_eff_norm = s.e_eff / e;
  s.participation_norm = s.participation / e;
  s.active_norm = double(s.active) / e;
  return s;
}

double saturation_limit(int64_t experts, int64_t top_k) {
  constexpr double kUsual = 0.9;
  if (experts == 0) return kUsual;
  if (experts <= top_k) return std::numeric_limits<double>::infinity();
  return std::max(kUsual, (1 + double(top_k) / double(experts)) / 2);
}

UniformRouting uniform_routing(int64_t experts, int64_t top_k, double assignments) {
  if (top_k < 1 || experts <= top_k || assignments <= 0) return {};
  // Each expert's count is binomial: `tokens` draws with this share.
  const double tokens = tokens_of(assignments, top_k);
  const double share = double(top_k) / double(experts), mean = tokens * share;
  const double ceiling = std::log(double(experts));
  UniformRouting u{.dead_share = std::pow(1 - share, tokens)};
  if (mean >= kSums) {
    u.entropy_norm = 1 - (1 - share) / (2 * mean * ceiling);
    u.gini = std::sqrt((1 - share) / (std::numbers::pi * mean));
    return u;
  }
  double chance = u.dead_share, up_to = 0, used = 0, differ = 0;  // of exactly, at most k
  for (double k = 0; k <= tokens && (k <= mean || chance > 1e-18); ++k) {
    up_to += chance;
    if (k > 1) used += chance * k * std::log(k);
    differ += up_to * std::max(0.0, 1 - up_to);
    chance *= (tokens - k) / (k + 1) * share / (1 - share);
  }
  u.entropy_norm = (std::log(tokens * double(top_k)) - used / mean) / ceiling;
  u.gini = differ / mean;
  return u;
}

double uniform_max_load_norm(int64_t experts, int64_t top_k, double assignments) {
  const double e = double(experts), share = double(top_k) / e;
  if (top_k < 1 || experts <= top_k || assignments <= 0) return share;
  const double tokens = tokens_of(assignments, top_k), mean = tokens * share;
  const double above = mean >= kSums ? std::sqrt(mean * (1 - share)) * largest_normal(e)
                                     : largest_binomial(e, tokens, share) - mean;
  // Counts with a fixed sum: what one has more, the others have less.
  return std::min(1.0, share + above * std::sqrt(e / (e - 1)) / tokens);
}

std::optional<double> gate_entropy_norm(double gate_entropy, int64_t top_k) {
  if (top_k <= 1) return std::nullopt;
  return gate_entropy / std::log(double(top_k));
}

double bias_range(View<const float, 1> bias) {
  if (bias.dim[0] == 0) return 0;
  const auto [low, high] = std::minmax_element(bias.data, bias.data + bias.dim[0]);
  return double(*high) - double(*low);
}

double router_overlap(View<const int32_t, 2> before, View<const int32_t, 2> now) {
  CHECK(before.dim[0] == now.dim[0] && before.dim[1] == now.dim[1] && now.size() > 0,
        "router_overlap: (%ld, %ld) before, (%ld, %ld) now", long(before.dim[0]),
        long(before.dim[1]), long(now.dim[0]), long(now.dim[1]));
  int64_t kept = 0;
  for (int64_t t = 0; t < now.dim[0]; ++t) {
    const int32_t* ids = before.row(t);
    for (int64_t i = 0; i < now.dim[1]; ++i) {
      kept += std::find(ids, ids + before.dim[1], now.at(t, i)) != ids + before.dim[1];
    }
  }
  return double(kept) / double(now.size());
}

DeadFor::DeadFor(int64_t experts, int64_t window) : window_(window), last_(size_t(experts), 0) {
  CHECK(window >= 1, "DeadFor: a window of %ld logged steps", long(window));
}

void DeadFor::add(View<const int64_t, 1> counts) {
  CHECK(counts.dim[0] == int64_t(last_.size()), "DeadFor: counts (%ld) of %ld experts",
        long(counts.dim[0]), long(last_.size()));
  ++logged_;
  for (size_t e = 0; e < last_.size(); ++e) {
    if (counts[int64_t(e)] > 0) last_[e] = logged_;
  }
}

std::optional<int64_t> DeadFor::dead() const {
  if (logged_ < window_) return std::nullopt;
  return std::count_if(last_.begin(), last_.end(),
                       [&](int64_t last) { return last <= logged_ - window_; });
}

}  // namespace assay
