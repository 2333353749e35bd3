// Horizons of every contract against published figures and counts by hand.
#include "base/check.h"
#include "engine/config/check.h"
#include "models/audit/horizon.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/model/speedrun_family.h"

namespace assay::test_horizon {
namespace {

// A small model of 1000 steps under the given contract.
Config small(const std::string& kind, double coefficient) {
  Config c;
  c.model.hidden = 64, c.model.layers = 2, c.model.heads = 2, c.model.ffn = 128;
  c.model.vocab_size = 512;
  c.run = {.steps = 1000, .batch_tokens = 1024, .sequence = 64, .micro_batch = 8};
  c.contract.kind = *choice_named<ContractKind>(kind), c.contract.coefficient = coefficient;
  return c;
}

}  // namespace

TEST_CASE("a horizon includes the last step despite the coefficient's rounding") {
  // alpha = steps * tokens / P as a double, then back: never one step less.
  for (const int64_t parameters : {190532352, 755534592, 13778240, 7, 1000003})
    for (const int64_t steps : {1, 9536, 12000, 999983}) {
      const double alpha = static_cast<double>(steps * 524288) / static_cast<double>(parameters);
      INFO(parameters << " parameters, " << steps << " steps");
      REQUIRE(horizon_steps(parameters, alpha, 524288) == steps);
      REQUIRE(horizon_steps(parameters, alpha * (1 - 1e-9), 524288) == steps - 1);
    }
  REQUIRE(horizon_steps(1000, 20, 20000) == 1);
  REQUIRE(horizon_steps(999, 20, 20000) == 0);
  REQUIRE(fraction_of_steps(10, 0.2) == 2);
  REQUIRE(fraction_of_steps(11, 0.2) == 3);
  REQUIRE(fraction_of_steps(9, 1.0 / 3) == 3);
  REQUIRE(fraction_of_steps(12345, 1) == 12345);
  REQUIRE(fraction_of_steps(1000, 1e-300) == 1);
  REQUIRE_THROWS_AS(horizon_steps(1000, 0, 1), UserError);
  REQUIRE_THROWS_AS(fraction_of_steps(1000, 0), UserError);
}

TEST_CASE("every contract gives the dense speedrun model its 9536 steps") {
  const double tokens = 9536.0 * 524288;
  const struct {
    const char* kind;
    double coefficient;
    int64_t dense, moe_64, moe_256;
  } rows[] = {
      {"steps", 0, 9536, 9536, 9536},
      {"active-width", 3072, 9536, 9536, 9536},
      {"activeDN", tokens / 190532352, 9536, 9563, 9654},
      {"totalDN", tokens / 190532352, 9536, 37813, 141963},
      // By hand: 9536 * 1024524288 / 1027768320 = 9505.9, / 1038680064 = 9406.04.
      {"flops", tokens * 1024524288.0, 9536, 9505, 9406},
      {"seconds", 9536 * 0.157, 9536, 9536, 9536},
  };
  for (const auto& row : rows) {
    INFO(row.kind);
    Config models[] = {speedrun_dense(), speedrun_moe(64, 6, 2, 1), speedrun_moe(256, 7, 1, 0)};
    const int64_t expected[] = {row.dense, row.moe_64, row.moe_256};
    for (int i = 0; i < 3; ++i) {
      models[i].contract.kind = *choice_named<ContractKind>(row.kind),
      models[i].contract.coefficient = row.coefficient;
      models[i].contract.step_seconds = 0.157;
      REQUIRE(horizon(models[i]) == expected[i]);
      REQUIRE(planned_steps(models[i]) == expected[i]);
    }
  }
}

TEST_CASE("seconds are divided by the seconds of a step") {
  Config c = small("seconds", 60);
  REQUIRE(!horizon_is_known(c));
  c.contract.step_seconds = 0.25;
  REQUIRE(horizon_is_known(c));
  REQUIRE(horizon(c) == 240);
  c.contract.step_seconds = 0.1;  // 60 / 0.1 gives 600 although the double 0.1 is above 1/10
  REQUIRE(horizon(c) == 600);
  c.contract.step_seconds = 61;
  REQUIRE(horizon(c) == 0);
  expect_error([&] { planned_steps(c); }, "ends before one step");
}

TEST_CASE("shared experts are excluded from the total only") {
  Config c = speedrun_moe(256, 7, 1, 0);
  c.contract = {};
  c.contract.kind = ContractKind::kTotalDN, c.contract.coefficient = 8,
  c.contract.shared_in_total = false;
  c.contract.landings = std::vector<double>{0.02, 0.05, 0.1, 0.2};
  REQUIRE(horizon(c) == 43119);
  REQUIRE(landings(c) == std::vector<Landing>{{0.02, 863}, {0.05, 2156}, {0.1, 4312}, {0.2, 8624}});
  c.contract.shared_in_total = true;
  REQUIRE(horizon(c) == 43281);  // floor(8 * 2836482816 / 524288)
  c.contract.kind = ContractKind::kActiveDN;
  const int64_t active = horizon(c);
  c.contract.shared_in_total = false;
  REQUIRE(horizon(c) == active);
}

TEST_CASE("a width contract refuses a different width and names both") {
  Config c = small("active-width", 256);
  expect_error([&] { horizon(c); }, "active FFN width of 256, this one has ffn = 128");
  MoeConfig& m = c.model.moe.emplace();
  m.experts = 4, m.top_k = 2, m.shared = 1, m.expert_ffn = 32;
  expect_error([&] { horizon(c); }, "(K + S) * F = (2 + 1) * 32 = 96");
  c.contract.coefficient = 96;
  REQUIRE(horizon(c) == 1000);
}

TEST_CASE("landings are the default fractions up to the run's end, and the end") {
  Config c = small("steps", 0);
  REQUIRE(landings(c).empty());
  c.contract.coefficient = double(audit(c).flops_per_token) * 1024 * 1000;
  c.contract.kind = ContractKind::kFlops;
  REQUIRE(
      landings(c) ==
      std::vector<Landing>{{0.02, 20}, {0.05, 50}, {0.1, 100}, {0.2, 200}, {0.5, 500}, {1, 1000}});
  c.contract.fraction = 0.15;
  REQUIRE(planned_steps(c) == 150);
  REQUIRE(landings(c) == std::vector<Landing>{{0.02, 20}, {0.05, 50}, {0.1, 100}, {0.15, 150}});
  c.contract.landings = std::vector<double>{0.1, 0.001, 0.1};
  REQUIRE(landings(c) == std::vector<Landing>{{0.001, 1}, {0.1, 100}});
  c.contract.landings = std::vector<double>{};
  REQUIRE(landings(c).empty());
  c.contract.landings = std::vector<double>{0.2};
  expect_error([&] { validate(c); }, "contract.landings has 0.2");
}

}  // namespace assay::test_horizon
