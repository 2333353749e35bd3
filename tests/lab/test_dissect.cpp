// Arithmetic and plans of assay dissect, by hand.
#include <cmath>

#include "base/check.h"
#include "lab/dissect/damage.h"
#include "lab/dissect/overlap.h"
#include "lab/dissect/used.h"
#include "tests/catch.h"

namespace assay::test_dissect {

TEST_CASE("damage is a mean over targets, its error is over sequences") {
  // Differences 2, 4 and 0 nats in sequences of 10, 10 and 20 targets: 6 / 40 = 0.15 a target.
  const std::vector<SequenceNats> base = {{5, 10}, {6, 10}, {7, 20}};
  const std::vector<SequenceNats> changed = {{7, 10}, {10, 10}, {7, 20}};
  const Damage damage = damage_of(changed, base);
  REQUIRE(damage.nats == Approx(0.15).epsilon(1e-12));
  REQUIRE(damage.targets == 40);
  // Residuals 0.5, 2.5 and -3: sqrt(3 / 2 * 15.5) / 40.
  REQUIRE(*damage.se == Approx(std::sqrt(23.25) / 40).epsilon(1e-12));
  REQUIRE(!damage_of(std::span(changed).first(1), std::span(base).first(1)).se);
  REQUIRE(loss_of(base).nats == Approx(18.0 / 40).epsilon(1e-12));
}

namespace {

LayerLoads loads() {
  return {.layer = 3, .counts = {5, 0, 9, 5, 0}, .first_use = {0, -1, 2, 4, -1}};
}

}  // namespace

TEST_CASE("experts by load, their shares, and what is removed") {
  const LayerLoads l = loads();
  REQUIRE(l.by_load() == std::vector<int32_t>{2, 0, 3, 1, 4});
  REQUIRE(l.share(std::vector<int32_t>{0, 2}) == Approx(14.0 / 19).epsilon(1e-12));
  const std::vector<LayerLoads> all = {l};

  DamagePlan plan{.removals = {Removal::kZero, Removal::kNext},
                  .groups = 2,
                  .busiest = 1,
                  .shared = true,
                  .routed = false,
                  .routers = false};
  const auto changes = interventions(plan, all, 3, true);
  std::vector<std::string> keys;
  for (const Intervention& i : changes) keys.push_back(i.key());
  // Without group 2 two experts remain, fewer than K = 3.
  REQUIRE(keys == std::vector<std::string>{"layer 3, group 1, zero", "layer 3, group 1, next",
                                           "layer 3, group 2, zero", "layer 3, expert 2, zero",
                                           "layer 3, expert 2, next", "layer 3, shared expert"});
  REQUIRE(changes[0].experts == std::vector<int32_t>{0, 2});
  REQUIRE(changes[2].experts == std::vector<int32_t>{1, 3, 4});
  REQUIRE_THROWS_AS(interventions({.layers = {0}}, all, 3, true), UserError);
  REQUIRE_THROWS_AS(interventions({.experts = {5}}, all, 3, true), UserError);
}

TEST_CASE("experts without load share a row of the table") {
  const LayerLoads l = {
      .layer = 1, .counts = {6, 0, 2, 0, 0, 0, 0, 0}, .first_use = {0, -1, 1, -1, -1, -1, -1, -1}};
  const std::vector<LayerLoads> all = {l};
  DamageReport report;
  report.loads = all;
  report.done = interventions({.removals = {Removal::kZero},
                               .groups = 4,
                               .busiest = -1,
                               .shared = false,
                               .routed = false,
                               .routers = false},
                              all, 2, false);
  report.damage.resize(report.done.size());
  report.damage.front().nats = 0.5;
  const std::string text = damage_text(report);
  CAPTURE(text);
  REQUIRE(text.find("group 1 ") != std::string::npos);
  REQUIRE(text.find("\ngroup 2 to 4 ") != std::string::npos);
  REQUIRE(text.find("group 3") == std::string::npos);
  REQUIRE(text.find("\n6 unused experts ") != std::string::npos);
  REQUIRE(text.find("layer 1: group 1, the busiest, has 100.0% of") != std::string::npos);
}

TEST_CASE("overlap of loads, and what sampling alone gives") {
  // Shares 0.5, 0.5, 0 and 0.25, 0.5, 0.25: half of the distance is 0.25.
  const std::vector<int64_t> a = {2, 2, 0}, b = {1, 2, 1};
  REQUIRE(load_overlap(a, b).overlap == Approx(0.75));
  // Pooled 3/8, 1/2, 1/8 and 1/A + 1/B = 1/2.
  const double terms = std::sqrt(0.234375 / 3.14159265358979) + std::sqrt(0.25 / 3.14159265358979) +
                       std::sqrt(0.109375 / 3.14159265358979);
  REQUIRE(load_overlap(a, b).sampling == Approx(1 - terms / 2));
  REQUIRE(load_overlap(a, a).overlap == 1);
  REQUIRE(load_overlap(a, std::vector<int64_t>{0, 0, 4}).overlap == 0);
  REQUIRE(load_overlap(a, std::vector<int64_t>{0, 0, 0}).overlap == 0);
}

TEST_CASE("used experts, also after a part of the text") {
  const LayerLoads l = loads();
  REQUIRE(used_experts(l) == 3);
  REQUIRE(used_experts(l, 0) == 0);
  REQUIRE(used_experts(l, 1) == 1);
  REQUIRE(used_experts(l, 3) == 2);
  REQUIRE(used_experts(l, 5) == 3);
}

}  // namespace assay::test_dissect
