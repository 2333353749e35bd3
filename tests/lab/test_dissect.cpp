// Arithmetic and plans of assay dissect, by hand.
#include <cmath>
#include <numeric>
#include <random>

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
  REQUIRE(load_overlap(a, b, 1).overlap == Approx(0.75));
  // Of eight tokens 3, 4 and 1 chose them, and four come to a side. X is 1 or 2 (6 of 7) or 0 or 3,
  // half or one and a half from its mean; 2 (36 of 70), 1 or 3 (32), 0 or 4 (2); 0 or 1.
  const double deviation = (0.5 * 6 + 1.5) / 7 + (32.0 + 2 * 2) / 70 + 0.5;
  REQUIRE(load_overlap(a, b, 1).sampling == Approx(1 - 0.5 * deviation / 2));
  REQUIRE(load_overlap(a, a, 1).overlap == 1);
  REQUIRE(load_overlap(a, std::vector<int64_t>{0, 0, 4}, 1).overlap == 0);
  REQUIRE(load_overlap(a, std::vector<int64_t>{0, 0, 0}, 1).overlap == 0);
}

TEST_CASE("sampling alone gives what two draws of distinct experts have") {
  struct Case {
    int64_t experts, top_k, tokens_a, tokens_b;
  };
  std::mt19937 random(1);
  for (const Case& c : {Case{8, 7, 60, 60},
                        {16, 8, 400, 400},
                        {4, 2, 100, 900},
                        {400, 1, 128, 128},
                        {13, 13, 50, 70}}) {
    CAPTURE(c.experts, c.top_k, c.tokens_a);
    const auto drawn = [&](int64_t tokens) {
      std::vector<int64_t> loads(size_t(c.experts)), ids(size_t(c.experts));
      std::iota(ids.begin(), ids.end(), 0);
      for (int64_t t = 0; t < tokens; ++t) {
        for (size_t k = 0; k < size_t(c.top_k); ++k) {
          std::swap(ids[k], ids[k + random() % (ids.size() - k)]);
          loads[size_t(ids[k])] += 1;
        }
      }
      return loads;
    };
    constexpr int kDraws = 4000;
    double overlap = 0, sampling = 0;
    for (int i = 0; i < kDraws; ++i) {
      const LoadOverlap o = load_overlap(drawn(c.tokens_a), drawn(c.tokens_b), c.top_k);
      overlap += o.overlap / kDraws;
      sampling += o.sampling / kDraws;
      if (c.top_k == c.experts) REQUIRE(o.sampling == 1);
    }
    // Of what is missing to 1, so that a wrong variance shows.
    REQUIRE(1 - sampling == Approx(1 - overlap).epsilon(0.01).margin(2e-4));
  }
}

TEST_CASE("used experts, also after a part of the text") {
  const LayerLoads l = loads();
  REQUIRE(used_experts(l) == 3);
  REQUIRE(used_experts(l, 0) == 0);
  REQUIRE(used_experts(l, 1) == 1);
  REQUIRE(used_experts(l, 3) == 2);
  REQUIRE(used_experts(l, 5) == 3);
}

TEST_CASE("fewer used parameters than active ones are explained") {
  UsedReport r;
  r.experts = 5, r.top_k = 2, r.tokens = 40, r.sequences = 8;
  r.p_total = 1000, r.p_active = r.p_used = 200;
  r.loads = {loads()};
  const std::string why = "P_used is below P_active, which counts the router's rows of unused";
  REQUIRE(used_text(r).find(why) == std::string::npos);
  r.p_used = 199;
  REQUIRE(used_text(r).find(why) != std::string::npos);
}

}  // namespace assay::test_dissect
