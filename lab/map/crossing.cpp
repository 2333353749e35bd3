#include "lab/map/crossing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/compare/contract_quantity.h"

namespace assay {
namespace {

bool same_budget(double a, double b) {
  return std::max(a, b) <= (1 + kHeldWithin) * std::min(a, b);
}

bool has_endpoint_at(const SeedCurve& curve, double cost) {
  return std::any_of(curve.points.begin(), curve.points.end(),
                     [&](const CostPoint& p) { return same_budget(p.cost, cost); });
}

// The seeds that both have.
std::vector<std::pair<const SeedCurve*, const SeedCurve*>> pairs_of(std::span<const SeedCurve> a,
                                                                    std::span<const SeedCurve> b) {
  std::vector<std::pair<const SeedCurve*, const SeedCurve*>> pairs;
  for (const SeedCurve& x : a) {
    for (const SeedCurve& y : b) {
      if (x.seed == y.seed && !x.points.empty() && !y.points.empty()) pairs.emplace_back(&x, &y);
    }
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const auto& p, const auto& q) { return p.first->seed < q.first->seed; });
  return pairs;
}

Ahead ahead_by(const Summary& difference, Better better) {
  if (difference.no_spread() && difference.mean != 0) return Ahead::kUndecided;
  if (difference.interval95 ? difference.interval95->contains(0) : difference.mean == 0) {
    const bool all_zero = difference.mean == 0 && difference.sd.value_or(0) == 0;
    return all_zero ? Ahead::kTie : Ahead::kUndecided;
  }
  const bool second_is_lower = difference.mean < 0;
  return second_is_lower == (better == Better::kLower) ? Ahead::kSecond : Ahead::kFirst;
}

// Where a line between neighbours passes 0, and 0 at the middle of a stretch of zeros between two
// signs. By ascending cost.
std::vector<double> sign_turns(const std::vector<CostPoint>& differences) {
  std::vector<double> turns;
  const CostPoint* last = nullptr;  // the last difference that is not 0
  const CostPoint* zero = nullptr;  // the first 0 after it
  const CostPoint* before = nullptr;
  for (const CostPoint& here : differences) {
    if (here.value == 0) {
      if (zero == nullptr) zero = &here;
    } else {
      if (last != nullptr && std::signbit(last->value) != std::signbit(here.value)) {
        const double from = std::log(last->cost), to = std::log(here.cost);
        const double share = last->value / (last->value - here.value);
        turns.push_back(zero != nullptr ? std::sqrt(zero->cost * before->cost)
                                        : std::exp(from + share * (to - from)));
      }
      last = &here;
      zero = nullptr;
    }
    before = &here;
  }
  return turns;
}

void summarise_crossings(PairOnAxis& pair) {
  std::vector<double> logs;
  for (const SeedCrossings& seed : pair.crossings) {
    if (seed.at.size() != 1 || seed.to_first != pair.crossings.front().to_first) return;
    logs.push_back(std::log(seed.at.front()));
  }
  if (logs.empty()) return;
  const Summary summary = summarise(std::span<const double>(logs));
  pair.crossing = std::exp(summary.mean);
  if (summary.interval95) {
    pair.crossing95 = {.low = std::exp(summary.interval95->low),
                       .high = std::exp(summary.interval95->high)};
  }
}

}  // namespace

bool turn_in_opposite_directions(const std::vector<SeedCrossings>& seeds) {
  const auto once = [](const SeedCrossings& seed) { return seed.at.size() == 1; };
  const auto as_first = [&](const SeedCrossings& seed) {
    return seed.to_first == seeds.front().to_first;
  };
  return !seeds.empty() && std::all_of(seeds.begin(), seeds.end(), once) &&
         !std::all_of(seeds.begin(), seeds.end(), as_first);
}

bool PairOnAxis::turns() const {
  const auto has = [&](Ahead who) {
    return std::any_of(budgets.begin(), budgets.end(),
                       [&](const BudgetRow& row) { return row.decided() && row.ahead == who; });
  };
  return has(Ahead::kFirst) && has(Ahead::kSecond);
}

std::optional<double> value_at(const SeedCurve& curve, double cost) {
  if (curve.points.empty()) return std::nullopt;
  const CostPoint &first = curve.points.front(), &last = curve.points.back();
  if (cost <= first.cost) {
    return same_budget(cost, first.cost) ? std::optional(first.value) : std::nullopt;
  }
  if (cost >= last.cost) {
    return same_budget(cost, last.cost) ? std::optional(last.value) : std::nullopt;
  }
  const auto after = std::find_if(curve.points.begin(), curve.points.end(),
                                  [&](const CostPoint& p) { return p.cost >= cost; });
  if (after->cost == cost) return after->value;
  const CostPoint& before = *std::prev(after);
  const double share = std::log(cost / before.cost) / std::log(after->cost / before.cost);
  return before.value + share * (after->value - before.value);
}

std::vector<double> budgets_of(std::span<const SeedCurve> a, std::span<const SeedCurve> b) {
  std::vector<double> costs;
  for (const auto& [x, y] : pairs_of(a, b)) {
    for (const SeedCurve* curve : {x, y}) {
      for (const CostPoint& point : curve->points) costs.push_back(point.cost);
    }
  }
  std::sort(costs.begin(), costs.end());
  std::vector<double> budgets;
  for (size_t from = 0; from < costs.size();) {
    size_t to = from + 1;
    while (to < costs.size() && same_budget(costs[from], costs[to])) ++to;
    budgets.push_back(costs[from + (to - from - 1) / 2]);
    from = to;
  }
  return budgets;
}

std::optional<SeedCrossings> crossings_of(const SeedCurve& first, const SeedCurve& second,
                                          Better better) {
  if (first.points.empty() || second.points.empty()) return std::nullopt;
  SeedCrossings found{.seed = first.seed,
                      .low = std::max(first.points.front().cost, second.points.front().cost),
                      .high = std::min(first.points.back().cost, second.points.back().cost),
                      .at = {}};
  if (found.low >= found.high) return std::nullopt;
  std::vector<double> costs;
  for (const SeedCurve* curve : {&first, &second}) {
    for (const CostPoint& p : curve->points) {
      if (found.low <= p.cost && p.cost <= found.high) costs.push_back(p.cost);
    }
  }
  std::sort(costs.begin(), costs.end());
  costs.erase(std::unique(costs.begin(), costs.end()), costs.end());
  std::vector<CostPoint> differences;
  for (const double cost : costs) {
    differences.push_back(
        {.cost = cost, .value = *value_at(second, cost) - *value_at(first, cost)});
  }
  found.at = sign_turns(differences);
  for (const CostPoint& d : differences) {
    if (d.value != 0) found.to_first = (d.value > 0) == (better == Better::kLower);
  }
  return found;
}

PairOnAxis compare_on_axis(std::span<const SeedCurve> first, std::span<const SeedCurve> second,
                           Better better) {
  PairOnAxis pair;
  const auto seeds = pairs_of(first, second);
  for (const double cost : budgets_of(first, second)) {
    BudgetRow row{.cost = cost, .first = {}, .second = {}, .difference = {}};
    SeedValues of_first, of_second;
    for (const auto& [a, b] : seeds) {
      const auto x = value_at(*a, cost), y = value_at(*b, cost);
      if (!x || !y) continue;
      of_first.push_back({.seed = a->seed, .value = *x});
      of_second.push_back({.seed = a->seed, .value = *y});
      row.first_interpolated |= !has_endpoint_at(*a, cost);
      row.second_interpolated |= !has_endpoint_at(*b, cost);
    }
    if (of_first.empty()) continue;
    row.first = *summarise(of_first);
    row.second = *summarise(of_second);
    row.difference = *paired_difference(of_second, of_first);
    row.ahead = ahead_by(row.difference.summary, better);
    pair.budgets.push_back(row);
  }
  for (const auto& [a, b] : seeds) {
    if (auto found = crossings_of(*a, *b, better)) pair.crossings.push_back(std::move(*found));
  }
  summarise_crossings(pair);
  return pair;
}

}  // namespace assay
