// Two models along an axis of cost, on planted endpoints whose answers are known by hand.
#include <cmath>

#include "lab/map/crossing.h"
#include "tests/catch.h"

namespace assay::test_crossing {
namespace {

SeedCurve curve(int64_t seed, std::vector<CostPoint> points) {
  return {.seed = seed, .points = std::move(points)};
}

std::vector<double> costs(const PairOnAxis& pair) {
  std::vector<double> found;
  for (const BudgetRow& row : pair.budgets) found.push_back(row.cost);
  return found;
}

TEST_CASE("a value is linear in the logarithm of the cost") {
  const SeedCurve c = curve(1, {{10, 4}, {1000, 2}, {4000, 1}});
  REQUIRE(*value_at(c, 10) == 4);
  REQUIRE(*value_at(c, 100) == Approx(3));     // half the way from 10 to 1000
  REQUIRE(*value_at(c, 2000) == Approx(1.5));  // half the way from 1000 to 4000
  REQUIRE(*value_at(c, 4000) == 1);
}

TEST_CASE("nothing is extrapolated, but a step's rounding is an equal budget") {
  const SeedCurve c = curve(1, {{100, 4}, {200, 3}});
  REQUIRE_FALSE(value_at(c, 98));
  REQUIRE_FALSE(value_at(c, 203));
  REQUIRE(*value_at(c, 99.5) == 4);
  REQUIRE(*value_at(c, 201) == 3);
  REQUIRE_FALSE(value_at(curve(1, {}), 100));
}

TEST_CASE("a crossing that is exactly known") {
  // second - first is +1 at 10, -1 at 1000: 0 at 100.
  const std::vector<SeedCurve> first = {curve(1, {{10, 3}, {1000, 3}})};
  const std::vector<SeedCurve> second = {curve(1, {{10, 4}, {1000, 2}})};
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(costs(pair) == std::vector<double>{10, 1000});
  REQUIRE(pair.budgets[0].ahead == Ahead::kFirst);
  REQUIRE(pair.budgets[1].ahead == Ahead::kSecond);
  REQUIRE_FALSE(pair.budgets[0].decided());  // one seed
  REQUIRE_FALSE(pair.turns());
  REQUIRE(pair.crossings.size() == 1);
  REQUIRE(pair.crossings[0].at.size() == 1);
  REQUIRE(pair.crossings[0].at[0] == Approx(100));
  REQUIRE_FALSE(pair.crossings[0].to_first);
  REQUIRE(*pair.crossing == Approx(100));
  REQUIRE_FALSE(pair.crossing95);

  // Of a score the higher one is ahead: the same numbers, the other way round.
  const PairOnAxis score = compare_on_axis(first, second, Better::kHigher);
  REQUIRE(score.budgets[0].ahead == Ahead::kSecond);
  REQUIRE(score.crossings[0].to_first);
  REQUIRE(*score.crossing == Approx(100));
}

TEST_CASE("the crossing's interval is Student's over the logarithms") {
  // Crossings at 10^1, 10^2 and 10^3: differences +s, and -(4 - s) at 10^4 from 1.
  std::vector<SeedCurve> first, second;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    first.push_back(curve(seed, {{1, 3}, {1e4, 3}}));
    second.push_back(curve(seed, {{1, 3 + double(seed)}, {1e4, 3 + double(seed) - 4}}));
  }
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(*pair.crossing == Approx(100));
  // sd of the decimal logarithms is 1, t(0.975, 2) = 4.302652730.
  const double half = 4.302652730 / std::sqrt(3.0);
  REQUIRE(std::log10(pair.crossing95->low) == Approx(2 - half));
  REQUIRE(std::log10(pair.crossing95->high) == Approx(2 + half));
  // +1 +2 +3 has the interval 2 +- 2.48, which includes 0.
  REQUIRE(pair.budgets[0].ahead == Ahead::kUndecided);
  REQUIRE(pair.budgets[1].ahead == Ahead::kUndecided);
  REQUIRE_FALSE(pair.turns());
}

TEST_CASE("the ranking turns where intervals on both sides exclude 0") {
  std::vector<SeedCurve> first, second;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    const double noise = 0.01 * double(seed);
    first.push_back(curve(seed, {{10, 3}, {1000, 3}}));
    second.push_back(curve(seed, {{10, 4 + noise}, {1000, 2 + noise}}));
  }
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(pair.turns());
  REQUIRE(pair.budgets[0].decided());
  REQUIRE(pair.budgets[0].difference.summary.mean == Approx(1.02));
  REQUIRE(pair.crossing95->contains(*pair.crossing));
}

TEST_CASE("a few seeds with all the same difference decide neither the order nor where it turns") {
  for (const int64_t seeds : {2, 5, 6}) {
    std::vector<SeedCurve> first, second;
    for (int64_t seed = 1; seed <= seeds; ++seed) {
      first.push_back(curve(seed, {{10, 3}, {1000, 3}}));
      second.push_back(curve(seed, {{10, 4}, {1000, 2}}));
    }
    const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
    const bool enough = seeds >= 6;
    REQUIRE(pair.budgets[0].ahead == (enough ? Ahead::kFirst : Ahead::kUndecided));
    REQUIRE(pair.budgets[1].decided() == enough);
    REQUIRE(pair.turns() == enough);
    REQUIRE(*pair.crossing == Approx(100));
    REQUIRE(pair.crossing95.has_value() == enough);
  }
}

TEST_CASE("a seed that one model lacks is left out") {
  const std::vector<SeedCurve> first = {curve(1, {{10, 3}}), curve(2, {{10, 100}}),
                                        curve(3, {{10, 3}})};
  const std::vector<SeedCurve> second = {curve(3, {{10, 2}}), curve(1, {{10, 2.5}})};
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(pair.budgets.size() == 1);
  REQUIRE(pair.budgets[0].difference.seeds == std::vector<int64_t>{1, 3});
  REQUIRE(pair.budgets[0].difference.summary.mean == Approx(-0.75));
  REQUIRE(pair.budgets[0].first.mean == 3);
  REQUIRE(compare_on_axis(first, std::vector<SeedCurve>{curve(4, {{10, 1}})}, Better::kLower)
              .budgets.empty());
}

TEST_CASE("one endpoint each: equal budgets are compared, and there is no crossing") {
  const std::vector<SeedCurve> first = {curve(1, {{1000, 3}})}, second = {curve(1, {{1004, 2}})};
  const PairOnAxis equal = compare_on_axis(first, second, Better::kLower);
  REQUIRE(equal.budgets.size() == 1);
  REQUIRE(equal.budgets[0].ahead == Ahead::kSecond);
  REQUIRE_FALSE(equal.budgets[0].first_interpolated);
  REQUIRE_FALSE(equal.budgets[0].second_interpolated);
  REQUIRE(equal.crossings.empty());
  REQUIRE_FALSE(equal.crossing);
  const std::vector<SeedCurve> other = {curve(1, {{1100, 2}})};
  REQUIRE(compare_on_axis(first, other, Better::kLower).budgets.empty());
}

TEST_CASE("budgets are those of both models, where both have a value") {
  const std::vector<SeedCurve> first = {curve(1, {{10, 4}, {100, 3}})};
  const std::vector<SeedCurve> second = {curve(1, {{50, 2}, {200, 1}})};
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(costs(pair) == std::vector<double>{50, 100});
  REQUIRE(pair.budgets[0].first_interpolated);
  REQUIRE_FALSE(pair.budgets[0].second_interpolated);
  REQUIRE_FALSE(pair.budgets[1].first_interpolated);
  REQUIRE(pair.budgets[1].second.mean == Approx(1.5));  // 100 is half the way from 50 to 200
  REQUIRE(pair.crossings[0].low == 50);
  REQUIRE(pair.crossings[0].high == 100);
  REQUIRE(pair.crossings[0].at.empty());
}

TEST_CASE("an endpoint within 1% of a budget is no gap, and its value is read at the budget") {
  const std::vector<SeedCurve> first = {curve(1, {{10, 4}, {99.5, 3}, {1000, 2}})};
  const std::vector<SeedCurve> second = {curve(1, {{10, 3}, {100, 2}, {1000, 1}})};
  const PairOnAxis pair = compare_on_axis(first, second, Better::kLower);
  REQUIRE(costs(pair) == std::vector<double>{10, 99.5, 1000});
  const BudgetRow& row = pair.budgets[1];
  REQUIRE_FALSE(row.first_interpolated);
  REQUIRE_FALSE(row.second_interpolated);
  REQUIRE(row.first.mean == 3);
  REQUIRE(row.second.mean == Approx(3 - std::log10(99.5 / 10)));  // 2.0022, its endpoint has 2
}

TEST_CASE("ties") {
  const std::vector<SeedCurve> c = {curve(1, {{10, 3}, {100, 2}}), curve(2, {{10, 3}, {100, 2}})};
  const PairOnAxis same = compare_on_axis(c, c, Better::kLower);
  REQUIRE(same.budgets[0].ahead == Ahead::kTie);
  REQUIRE(same.crossings[0].at.empty());
  REQUIRE_FALSE(same.crossing);

  // The sign turns over a stretch where both are equal: its middle.
  const SeedCurve flat = curve(1, {{1, 2}, {10, 2}, {1000, 2}, {1e4, 2}});
  const SeedCurve falls = curve(1, {{1, 3}, {10, 2}, {1000, 2}, {1e4, 1}});
  REQUIRE(crossings_of(flat, falls, Better::kLower)->at == std::vector<double>{100});
  // It touches and goes back: no turn.
  const SeedCurve touches = curve(1, {{1, 3}, {10, 2}, {1000, 2}, {1e4, 3}});
  REQUIRE(crossings_of(flat, touches, Better::kLower)->at.empty());
}

TEST_CASE("seeds that disagree have no common crossing") {
  const std::vector<SeedCurve> first = {curve(1, {{1, 2}, {100, 2}}), curve(2, {{1, 2}, {100, 2}})};
  const std::vector<SeedCurve> never = {curve(1, {{1, 3}, {100, 1}}),
                                        curve(2, {{1, 3}, {100, 2.5}})};
  const PairOnAxis one_of_two = compare_on_axis(first, never, Better::kLower);
  REQUIRE(one_of_two.crossings[0].at.size() == 1);
  REQUIRE(one_of_two.crossings[1].at.empty());
  REQUIRE_FALSE(one_of_two.crossing);
  const std::vector<SeedCurve> back = {curve(1, {{1, 3}, {100, 1}}), curve(2, {{1, 1}, {100, 3}})};
  REQUIRE_FALSE(compare_on_axis(first, back, Better::kLower).crossing);
  // Twice in one seed.
  const std::vector<SeedCurve> twice = {curve(1, {{1, 3}, {10, 1}, {100, 3}})};
  const PairOnAxis zigzag = compare_on_axis(first, twice, Better::kLower);
  REQUIRE(zigzag.crossings[0].at.size() == 2);
  REQUIRE(zigzag.crossings[0].at[0] == Approx(std::sqrt(10.0)));
  REQUIRE_FALSE(zigzag.crossing);
}

TEST_CASE("measured costs of other seeds are budgets of their own") {
  const std::vector<SeedCurve> first = {curve(1, {{10, 3}, {20, 2}}), curve(2, {{11, 3}, {22, 2}})};
  const PairOnAxis pair = compare_on_axis(first, first, Better::kLower);
  REQUIRE(costs(pair) == std::vector<double>{10, 11, 20, 22});
  REQUIRE(pair.budgets[0].difference.seeds == std::vector<int64_t>{1});
  REQUIRE(pair.budgets[1].difference.seeds == std::vector<int64_t>{1, 2});
}

}  // namespace
}  // namespace assay::test_crossing
