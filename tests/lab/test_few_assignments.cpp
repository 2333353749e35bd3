#include <algorithm>
#include <random>

#include "engine/telemetry/router_stats.h"
#include "lab/router/analysis.h"
#include "lab/runs/router_state.h"
#include "tests/catch.h"
#include "tests/lab/planted_analysis.h"

// The verdict on windows that hold few assignments per expert.
namespace assay::test_few_assignments {
namespace {

constexpr int64_t kExperts = 4096;

// One layer whose first `used` experts take the assignments, all alike, K = 1.
RouterHealth drawn(int64_t used, int64_t assignments) {
  std::mt19937_64 random(7);
  std::vector<int64_t> counts(size_t(kExperts), 0);
  for (int64_t a = 0; a < assignments; ++a) ++counts[size_t(random() % uint64_t(used))];
  const RouterStats s = router_stats({counts.data(), {kExperts}}, 1);
  const LayerHealth layer{.layer = 1,
                          .max_load_norm = s.max_load_norm,
                          .active_norm = s.active_norm,
                          .cv_norm = s.cv_norm,
                          .entropy_norm = s.entropy_norm,
                          .assignments = s.assignments};
  return health_of({&layer, 1}, kExperts, 1);
}

RouterHealth with_dead(double dead, double assignments) {
  return {.dead_share = dead,
          .saturated = {},
          .experts = kExperts,
          .top_k = 1,
          .assignments = assignments};
}

}  // namespace

TEST_CASE("few assignments: an even router is healthy, though sampling leaves experts dead") {
  // 0.31, 0.6, 1, 2 and 3 assignments per expert; 73, 55, 37, 14 and 5% are dead.
  for (const int64_t assignments : {1280, 2458, 4096, 8192, 12288}) {
    INFO(assignments);
    const RouterHealth health = drawn(kExperts, assignments);
    REQUIRE(health.assignments == double(assignments));
    REQUIRE(health.dead_share > 0.04);
    REQUIRE(router_state(health) == RouterState::kHealthy);
  }
}

TEST_CASE("few assignments: experts that get none for another reason still count") {
  for (const int64_t assignments : {2458, 8192}) {
    INFO(assignments);
    REQUIRE(router_state(drawn(kExperts / 8, assignments)) == RouterState::kCollapsed);
    REQUIRE(router_state(drawn(kExperts * 5 / 8, assignments)) == RouterState::kUneven);
  }
}

TEST_CASE("few assignments: the texts have what sampling alone gives") {
  const RouterHealth even = drawn(kExperts, 8192);
  REQUIRE(even.text().ends_with("of the experts dead (sampling alone gives 13.5%)"));
  const RouterJudgement judged = judge_router(even);
  REQUIRE(
      judged.rule.find("with 2 assignments per expert in the window sampling alone leaves 13.5% "
                       "of the experts dead and an entropy of 0.966 ln E") != std::string::npos);
  REQUIRE(drawn(kExperts, 16 * kExperts).text().ends_with("% of the experts dead"));
  REQUIRE(judge_router(drawn(kExperts, 16 * kExperts)).rule.find("sampling") == std::string::npos);
}

TEST_CASE(
    "few assignments: from ten per expert on, and where unknown, the rules are as they were") {
  for (const double assignments : {0.0, 10.0 * kExperts}) {
    INFO(assignments);
    REQUIRE(router_state(with_dead(0.05, assignments)) == RouterState::kHealthy);
    REQUIRE(router_state(with_dead(0.0500001, assignments)) == RouterState::kUneven);
    REQUIRE(router_state(with_dead(0.5, assignments)) == RouterState::kUneven);
    REQUIRE(router_state(with_dead(0.5000001, assignments)) == RouterState::kCollapsed);
    RouterHealth narrow = with_dead(0, assignments);
    narrow.min_entropy_norm = 0.9;
    REQUIRE(router_state(narrow) == RouterState::kHealthy);
    narrow.min_entropy_norm = 0.8999999;
    REQUIRE(router_state(narrow) == RouterState::kUneven);
  }
}

TEST_CASE("few assignments: the verdict of `assay router` knows of them") {
  RouterAnalysis a = healthy_analysis();
  Config config;
  config.model.moe = MoeConfig();
  a.layers[0].active_norm = 0.46;  // 0.475 is what ten tokens leave, each with four experts
  a.layers[0].entropy_norm = 0.78;
  a.layers[0].assignments = 40;
  REQUIRE(router_verdict(a, config).state == RouterState::kHealthy);
  a.layers[0].assignments = 10 * double(a.experts);
  REQUIRE(router_verdict(a, config).state == RouterState::kCollapsed);
}

}  // namespace assay::test_few_assignments
