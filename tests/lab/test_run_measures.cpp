#include <cmath>
#include <set>

#include "lab/runs/run_measures.h"
#include "tests/catch.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_run_measures {
namespace {

using planted_measures::run_of;

}  // namespace

TEST_CASE("measures of a run") {
  const RunRecord run = run_of({"a", 1, 4.0, 0.95, 40});
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run).value(); };
  REQUIRE(value("val_loss") == 4.0);
  REQUIRE(value("loss_after_saturation") == -1.0);
  REQUIRE(value("max_load_worst") == 0.95);
  REQUIRE(std::abs(value("max_load") - 0.95 * 2 / 3) < 1e-12);
  REQUIRE(std::abs(value("max_load_by_depth") - 0.475) < 1e-12);
  REQUIRE(value("dead") == 0.75);
  REQUIRE(value("collapsed") == 1);
  REQUIRE(std::abs(value("saturated_layers") - 1.0 / 3) < 1e-12);
  REQUIRE(value("step_cv") == 1.5);
  REQUIRE(value("swing") == 1.25);
  REQUIRE(value("first_saturation") == 40);
  REQUIRE(value("first_saturated_depth") == 1);
  REQUIRE(first_saturated_layers(run) == std::vector<int64_t>{3});
  // A run without a measure has no value for it.
  const RunRecord dense = hand_made({.name = "d", .val_loss_nats = {{100, 3.0, 10}}});
  const RunRecord late = run_of({"b", 1, 4.0, 0.95, 100});
  const std::set<std::string> of_dense = {"val_loss", "best_val_loss", "step_seconds"};
  for (const RunMeasure& measure : run_measures()) {
    INFO(measure.name);
    REQUIRE(measure.of(dense).has_value() == of_dense.contains(measure.name));
  }
  REQUIRE(!find_run_measure("loss_after_saturation")->of(late));
  REQUIRE(find_run_measure("max_laod") == nullptr);
}

TEST_CASE("a run is collapsed or not by the verdict on its routers, once there is one") {
  RunRecord run = run_of({"a", 1, 4.0, 0.5});
  const auto collapsed = [&] { return find_run_measure("collapsed")->of(run); };
  run.health->dead_share = 0;
  REQUIRE(collapsed() == 0);
  run.health->dead_share = 0.6;
  REQUIRE(collapsed() == 1);
  run.health->logged = 3, run.health->window = 20;
  REQUIRE(!collapsed());
  run.health->stopped_by_guard = true;
  REQUIRE(collapsed() == 1);
}

TEST_CASE("measures of a run's losses and of its target") {
  RunRecord run =
      hand_made({.name = "a", .val_loss_nats = {{20, 4.0, 10}, {40, 3.1, 10}, {60, 3.2, 10}}});
  run.val_bits_per_byte = {{20, 2.0, 10}, {60, 1.6, 10}};
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run); };
  REQUIRE(value("val_loss") == 3.2);
  REQUIRE(value("best_val_loss") == 3.1);
  REQUIRE(value("bits_per_byte") == 1.6);
  REQUIRE(value("step_seconds") == 0.5);
  REQUIRE(!value("target_steps"));  // none is set
  run.config.run.target_loss = 3.28;
  REQUIRE(value("target_steps") == 40);
  REQUIRE(value("target_tokens") == 40 * 1000);
  REQUIRE(value("target_seconds") == 20);
  REQUIRE(value("target_flops") == 40 * 1000 * 30);
  run.config.run.target_loss = 3;
  REQUIRE(!value("target_steps"));  // it was not reached
  run = run_of({"b", 1, 4.0, 0.95});
  run.config.model.moe.emplace().experts = 64;
  run.health->min_entropy_norm = 0.5;
  REQUIRE(std::abs(value("effective_experts").value() - 8) < 1e-12);
}

TEST_CASE("the same relative loads are the same effective share of any number of experts") {
  for (const int64_t experts : {16, 1024}) {
    RunRecord run = run_of({"a", 1, 4.0, 0.95});
    run.config.model.moe.emplace().experts = experts;
    // Half of the experts have equal loads, the others none.
    run.health->min_entropy_norm = std::log(double(experts) / 2) / std::log(double(experts));
    const auto value = [&](const char* name) { return find_run_measure(name)->of(run).value(); };
    REQUIRE(std::abs(value("effective_share") - 0.5) < 1e-12);
    REQUIRE(std::abs(value("effective_experts") - double(experts) / 2) < 1e-9);
  }
}

TEST_CASE("the trend of a loss is its slope per doubling of the tokens") {
  RunRecord run = hand_made(
      {.name = "a", .val_loss_nats = {{5, 9.0, 10}, {20, 4.0, 10}, {40, 3.7, 10}, {80, 3.4, 10}}});
  const auto trend = find_run_measure("val_loss_trend")->of;
  REQUIRE(std::abs(trend(run).value() + 0.3) < 1e-12);  // the first is before a tenth of the run
  run.val_loss_nats.pop_back();
  REQUIRE(!trend(run));
}

}  // namespace assay::test_run_measures
