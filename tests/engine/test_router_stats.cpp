#include <algorithm>
#include <cmath>

#include "engine/telemetry/router_stats.h"
#include "engine/telemetry/router_telemetry.h"
#include "tests/catch.h"

namespace assay::test_router_stats {

namespace {

using Counts = std::vector<int64_t>;

View<const int64_t, 1> view(const Counts& counts) {
  return {counts.data(), {int64_t(counts.size())}};
}
RouterStats stats_of(const Counts& counts, int64_t top_k) {
  return router_stats(view(counts), top_k);
}

// For closed forms of about a dozen operations in double.
Approx approx(double x) {
  return Approx(x).epsilon(1e-12).margin(1e-12);
}

}  // namespace

TEST_CASE("uniform load: cv 0, entropy ln E") {
  for (const int64_t experts : {2, 64, 4096}) {
    const RouterStats s = stats_of(Counts(size_t(experts), 12), 2);
    const double e = double(experts);
    REQUIRE(s.cv == approx(0));
    REQUIRE(s.entropy == approx(std::log(e)));
    REQUIRE(s.e_eff == approx(e));
    REQUIRE(s.participation == approx(e));
    REQUIRE(s.active == experts);
    REQUIRE(s.gini == approx(0));
    REQUIRE(s.max_load == approx(1 / e));
    REQUIRE(*s.entropy_norm == approx(1));
    REQUIRE(s.e_eff_norm == approx(1));
    REQUIRE(s.participation_norm == approx(1));
    REQUIRE(s.active_norm == approx(1));
    REQUIRE(s.assignments == 12 * e);
    REQUIRE(s.cv_floor == approx(100 * std::sqrt((e - 2) / (12 * e))));
    REQUIRE(s.max_load_norm < saturation_limit(experts, 2));
  }
}

TEST_CASE("what sampling alone gives: exact where counts are small, and close to closed forms") {
  struct Row {
    double assignments, dead, entropy, gini;  // of 16384 experts
  };
  // Poisson counts of mean m: exp(-m), ln A - E[ln(1 + count)] over ln E, and for the Gini
  // coefficient exp(-2m) (I0(2m) + I1(2m)).
  for (const Row& r : {Row{1024, 0.93941, 0.70988, 0.94121},
                       {4096, 0.77880, 0.84017, 0.80146},
                       {8192, 0.60653, 0.89623, 0.67367},
                       {16384, 0.36788, 0.94091, 0.52378},
                       {57344, 0.03020, 0.98414, 0.29603}}) {
    INFO(r.assignments);
    const UniformRouting u = uniform_routing(16384, 1, r.assignments);
    REQUIRE(u.dead_share == Approx(r.dead).epsilon(1e-3));
    REQUIRE(u.entropy_norm == Approx(r.entropy).epsilon(1e-4));
    REQUIRE(u.gini == Approx(r.gini).epsilon(1e-4));
  }
  // One token chooses half of the experts: the others are dead, and two tokens differ in half.
  const UniformRouting one = uniform_routing(8, 4, 4);
  REQUIRE(one.dead_share == 0.5);
  REQUIRE(one.gini == approx(0.5));
  REQUIRE(one.entropy_norm == approx(std::log(4.0) / std::log(8.0)));
  // Where the sums end the closed forms go on.
  const UniformRouting below = uniform_routing(64, 1, 4095), above = uniform_routing(64, 1, 4096);
  REQUIRE(above.gini == approx(std::sqrt(63 / (3.14159265358979323846 * 4096))));
  REQUIRE(below.gini == Approx(above.gini).epsilon(2e-3));
  REQUIRE(below.entropy_norm == Approx(above.entropy_norm).epsilon(1e-4));
  for (const UniformRouting& even : {uniform_routing(4, 4, 100), uniform_routing(4, 1, 0),
                                     uniform_routing(4, 0, 100), uniform_routing(1, 1, 9)}) {
    REQUIRE((even.dead_share == 0 && even.entropy_norm == 1 && even.gini == 0));
  }
}

TEST_CASE("the largest load that sampling alone gives") {
  struct Row {
    int64_t experts, top_k;
    double tokens, max_load_norm;  // the mean of thousands of draws
  };
  for (const Row& r : {Row{4, 2, 64, 0.5741},
                       {4, 2, 4096, 0.5091},
                       {400, 1, 128, 0.0231},
                       {400, 1, 512, 0.0111},
                       {16, 8, 400, 0.5457},
                       {64, 1, 4096, 0.0205},
                       {13, 12, 50, 0.9796}}) {
    INFO(r.experts << " " << r.tokens);
    REQUIRE(uniform_max_load_norm(r.experts, r.top_k, r.tokens * double(r.top_k)) ==
            Approx(r.max_load_norm).epsilon(0.02));
  }
  // The mean of |z| / 2 over two experts.
  REQUIRE(uniform_max_load_norm(2, 1, 1e6) ==
          Approx(0.5 + 0.5e-3 * std::sqrt(2 / 3.14159265358979)).epsilon(1e-6));
  REQUIRE(uniform_max_load_norm(4, 2, 0) == 0.5);
  REQUIRE(uniform_max_load_norm(4, 4, 100) == 1);
}

TEST_CASE("exactly K experts used: every measure at its other end") {
  const int64_t experts = 4096, k = 7;
  Counts counts(size_t(experts), 0);
  for (int64_t i = 0; i < k; ++i) counts[size_t(i * 31)] = 500;
  const RouterStats s = stats_of(counts, k);
  REQUIRE(s.cv == approx(100 * std::sqrt(double(experts - k) / double(k))));
  REQUIRE(*s.cv_norm == approx(1));
  REQUIRE(s.entropy == approx(std::log(7.0)));
  REQUIRE(s.participation == approx(7));
  REQUIRE(s.active == 7);
  REQUIRE(s.max_load_norm == approx(1));
  REQUIRE(s.gini == approx(1 - 7.0 / 4096));
  REQUIRE(s.max_load_norm >= saturation_limit(experts, k));
}

TEST_CASE("saturation is far from even, also where even loads are near the ceiling") {
  REQUIRE(saturation_limit(0, 0) == 0.9);
  REQUIRE(saturation_limit(4096, 7) == 0.9);
  REQUIRE(saturation_limit(10, 8) == 0.9);
  REQUIRE(saturation_limit(8, 7) == 0.9375);
  REQUIRE(saturation_limit(10, 9) == 0.95);
  REQUIRE(stats_of(Counts(10, 12), 9).max_load_norm < saturation_limit(10, 9));
  REQUIRE(std::isinf(saturation_limit(2, 2)));
}

TEST_CASE("one expert in every token's top-K: max_load 1/K") {
  // 60 tokens, K = 3: expert 0 in all, the other 120 assignments over 6.
  const RouterStats s = stats_of({60, 20, 20, 20, 20, 20, 20}, 3);
  REQUIRE(s.max_load == approx(1.0 / 3));
  REQUIRE(s.max_load_norm == approx(1));
  REQUIRE(s.max_load_norm >= saturation_limit(7, 3));
  REQUIRE(stats_of({53, 27, 20, 20, 20, 20, 20}, 3).max_load_norm < saturation_limit(7, 3));
  REQUIRE(stats_of({54, 26, 20, 20, 20, 20, 20}, 3).max_load_norm >= saturation_limit(7, 3));
}

TEST_CASE("a small load by hand") {
  const RouterStats s = stats_of({4, 0, 1, 3}, 2);  // load 1/2, 0, 1/8, 3/8
  // The counts have mean 2 and variance (4 + 4 + 1 + 1) / 4.
  REQUIRE(s.cv == approx(100 * std::sqrt(10.0) / 4));
  REQUIRE(s.entropy ==
          approx(0.5 * std::log(2.0) + std::log(8.0) / 8 + 3.0 / 8 * std::log(8.0 / 3)));
  REQUIRE(s.participation == approx(64.0 / 26));
  REQUIRE(s.active == 3);
  REQUIRE(s.gini == approx(28.0 / 64));  // sum of all |x_i - x_j| over 2 n^2 mean
  REQUIRE(s.cv_norm == approx(s.cv / 100));
  REQUIRE(s.cv_floor == approx(100 * std::sqrt(2.0 / 8)));
}

TEST_CASE("ratios to a ceiling of 0 are absent") {
  REQUIRE_FALSE(stats_of({5}, 1).entropy_norm.has_value());
  REQUIRE_FALSE(stats_of({5}, 1).cv_norm.has_value());
  REQUIRE_FALSE(stats_of({5, 5, 5}, 3).cv_norm.has_value());
  REQUIRE(stats_of({5, 5, 5}, 3).entropy_norm.has_value());
  REQUIRE_FALSE(gate_entropy_norm(0, 1).has_value());
  REQUIRE(*gate_entropy_norm(std::log(4.0), 4) == approx(1));
}

TEST_CASE("one hot: every measure at the end that K = 1 allows") {
  Counts counts(64, 0);
  counts[17] = 9;
  const RouterStats s = stats_of(counts, 1);
  REQUIRE(s.cv == approx(100 * std::sqrt(63.0)));
  REQUIRE(*s.cv_norm == approx(1));
  REQUIRE(s.max_load == 1);
  REQUIRE(s.max_load_norm == 1);
  REQUIRE(s.entropy == 0);
  REQUIRE(*s.entropy_norm == 0);
  REQUIRE(s.e_eff == 1);
  REQUIRE(s.participation == 1);
  REQUIRE(s.active == 1);
  REQUIRE(s.gini == approx(63.0 / 64));
}

TEST_CASE("E = 1 and K = E: all measures, and no ratio to a ceiling of 0") {
  const RouterStats one = stats_of({7}, 1);
  REQUIRE(one.cv == 0);
  REQUIRE(one.cv_floor == 0);
  REQUIRE(one.max_load_norm == 1);
  REQUIRE(one.entropy == 0);
  REQUIRE(one.participation_norm == 1);
  REQUIRE(one.active_norm == 1);
  REQUIRE(one.gini == 0);
  const RouterStats all = stats_of({5, 5, 5}, 3);
  REQUIRE(all.cv_ceiling == 0);
  REQUIRE(all.max_load_norm == approx(1));
  REQUIRE(*all.entropy_norm == approx(1));
  REQUIRE(all.gini == approx(0));
}

TEST_CASE("loads with empty experts match the formulas as written") {
  uint64_t state = 1;
  for (const int64_t experts : {2, 5, 64, 1000}) {
    Counts counts;
    for (int64_t e = 0; e < experts; ++e) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      counts.push_back((state >> 33) % 3 == 0 ? 0 : int64_t((state >> 40) % 1000));
    }
    counts[0] = 1 + counts[0];
    const RouterStats s = stats_of(counts, 2);
    const double n = double(experts);
    double total = 0, entropy = 0, squares = 0, pairs = 0, variance = 0;
    for (const int64_t c : counts) total += double(c);
    for (const int64_t c : counts) {
      const double load = double(c) / total;
      squares += load * load;
      variance += (load - 1 / n) * (load - 1 / n) / n;
      if (c > 0) entropy -= load * std::log(load);
      for (const int64_t d : counts) pairs += std::abs(load - double(d) / total);
    }
    CAPTURE(experts);
    REQUIRE(s.cv == approx(100 * std::sqrt(variance) * n));
    REQUIRE(s.entropy == approx(entropy));
    REQUIRE(s.e_eff == approx(std::exp(entropy)));
    REQUIRE(s.participation == approx(1 / squares));
    // Both forms of participation agree.
    REQUIRE(s.participation == approx(n / (1 + 1e-4 * s.cv * s.cv)));
    REQUIRE(s.gini == approx(pairs / (2 * n)));
    REQUIRE(s.cv_floor == approx(100 * std::sqrt((n - 2) / total)));
    Counts more = counts;
    for (int64_t& c : more) c *= 3;
    std::reverse(more.begin(), more.end());
    REQUIRE(stats_of(more, 2).gini == approx(s.gini));  // neither scale nor order matters
    REQUIRE(stats_of(more, 2).entropy == approx(s.entropy));
  }
}

TEST_CASE("without assignments all measures are 0, not NaN") {
  const RouterStats s = stats_of({0, 0, 0}, 1);
  REQUIRE(s.cv == 0);
  REQUIRE(s.entropy == 0);
  REQUIRE(s.participation == 0);
  REQUIRE(s.max_load_norm == 0);
  REQUIRE(*s.cv_norm == 0);
  REQUIRE(s.active == 0);
}

TEST_CASE("bias range and overlap") {
  const std::vector<float> bias{0.5f, -2.0f, 16.0f};
  REQUIRE(bias_range({bias.data(), {3}}) == 18.0);
  REQUIRE(bias_range({}) == 0.0);
  const std::vector<int32_t> before{1, 2, 3, 4, 5, 6}, now{3, 2, 1, 4, 7, 8};
  const View<const int32_t, 2> then{before.data(), {2, 3}}, later{now.data(), {2, 3}};
  REQUIRE(router_overlap(then, later) == approx(4.0 / 6));
}

TEST_CASE("over layers: mean and deviation of cv, smallest entropy, largest load") {
  std::vector<RouterRow> layers(2);
  layers[0].step = stats_of({1, 1, 1, 1}, 2);
  layers[1].step = stats_of({2, 2, 0, 0}, 2);
  const RouterAggregate a = aggregate(layers);
  REQUIRE(a.cv_mean == approx(50));
  REQUIRE(a.cv_std == approx(50));
  REQUIRE(a.entropy_mean == approx((std::log(4.0) + std::log(2.0)) / 2));
  REQUIRE(a.entropy_min == approx(std::log(2.0)));
  REQUIRE(a.max_load_mean == approx(0.375));
  REQUIRE(a.max_load_max == approx(0.5));
  layers[0].step = layers[1].step = stats_of({5, 2, 0, 1}, 2);
  REQUIRE(aggregate(layers).cv_std == 0.0);  // equal layers
}

TEST_CASE("an expert is dead after a whole window without assignments") {
  DeadFor dead(3, 2);
  const Counts all{1, 1, 1}, first{1, 0, 0};
  dead.add(view(first));
  REQUIRE(!dead.dead());  // the window is not full
  dead.add(view(first));
  REQUIRE(dead.dead() == 2);
  dead.add(view(all));
  REQUIRE(dead.dead() == 0);
  dead.add(view(first));
  REQUIRE(dead.dead() == 0);
  dead.add(view(first));
  REQUIRE(dead.dead() == 2);
}

}  // namespace assay::test_router_stats
