// Two models along one axis of cost: who is ahead at each budget, and where the order turns. Pure
// arithmetic on endpoints, without runs.
//
// Between neighbouring endpoints of one seed a value is linear in log(cost). Nothing is
// extrapolated. On a convex loss curve the chord lies above the curve: an interpolated loss is
// rather too high, the more so the further apart the endpoints are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/runs/seed_groups.h"

namespace assay {

struct CostPoint {
  double cost = 0;  // above 0
  double value = 0;
};

// The endpoints of one model with one seed.
struct SeedCurve {
  int64_t seed = 0;
  std::vector<CostPoint> points;  // by ascending cost, all different
};

enum class Better { kLower, kHigher };

// Who is ahead at a budget.
enum class Ahead {
  kFirst,
  kSecond,
  kUndecided,  // the interval of the difference includes 0, or it has no_spread()
  kTie,        // every seed has a difference of 0
};

// What both models have at one budget, over the seeds that both have there.
struct BudgetRow {
  double cost = 0;
  Summary first, second;
  PairedDifference difference;  // second - first
  // No endpoint within kHeldWithin, in any of the seeds. With one so near the value is read at the
  // budget too, on the line to the endpoint's neighbour.
  bool first_interpolated = false, second_interpolated = false;
  Ahead ahead = Ahead::kUndecided;  // of one seed, which has no interval: by its sign
  bool decided() const { return difference.summary.interval95.has_value() && is_order(); }
  // The model behind has no endpoint here, and the chord is rather too bad for it: it may be behind
  // for that alone.
  bool by_chord() const {
    return (ahead == Ahead::kFirst && second_interpolated) ||
           (ahead == Ahead::kSecond && first_interpolated);
  }
  bool is_order() const { return ahead == Ahead::kFirst || ahead == Ahead::kSecond; }
};

// Where the sign of second - first turns for one seed.
struct SeedCrossings {
  int64_t seed = 0;
  double low = 0, high = 0;  // the costs that both models cover
  std::vector<double> at;    // by ascending cost
  bool to_first = false;     // the first model is ahead after the last crossing
};

// Whether every seed crosses once, some to the first model and some to the second.
bool turn_in_opposite_directions(const std::vector<SeedCrossings>& seeds);

struct PairOnAxis {
  std::vector<BudgetRow> budgets;        // by ascending cost
  std::vector<SeedCrossings> crossings;  // of the seeds whose ranges overlap, by ascending seed
  // Geometric mean over the seeds and its 95% interval (Student's, of log(cost)): only if every
  // seed crosses exactly once, all in the same direction. One seed has no interval, and neither
  // have a few that cross at the same cost.
  std::optional<double> crossing;
  std::optional<Interval> crossing95;
  // Decided budgets of both models.
  bool turns() const;
};

// The value at a cost: of an endpoint, or between two of them; nullopt outside. A cost beyond the
// range by at most kHeldWithin (lab/compare/contract_quantity.h) takes the endpoint there: whole
// steps make equal budgets differ by less than one of them.
std::optional<double> value_at(const SeedCurve& curve, double cost);

// The costs of a's and b's endpoints with the seeds that both have, ascending. Costs within
// kHeldWithin of each other are one budget, that of their middle one.
std::vector<double> budgets_of(std::span<const SeedCurve> a, std::span<const SeedCurve> b);

// nullopt if the ranges of the two do not overlap.
std::optional<SeedCrossings> crossings_of(const SeedCurve& first, const SeedCurve& second,
                                          Better better);

// Each with one curve per seed.
PairOnAxis compare_on_axis(std::span<const SeedCurve> first, std::span<const SeedCurve> second,
                           Better better);

}  // namespace assay
