// telemetry.collapse_stop: when its rule holds, in one process and across a resume.
#include "engine/telemetry/collapse_guard.h"
#include "engine/telemetry/telemetry.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_collapse_guard {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rows of two layers (blocks 1 and 3) with these values of max_load_norm and gini.
std::vector<RouterRow> rows_of(double first, double second) {
  std::vector<RouterRow> rows(2);
  rows[0].layer = 1;
  rows[1].layer = 3;
  rows[0].step.max_load_norm = rows[0].step.gini = first;
  rows[1].step.max_load_norm = rows[1].step.gini = second;
  return rows;
}

using Steps = std::vector<std::pair<double, double>>;

// The first logged step, counted from 1, after which the rule holds; 0: never.
int64_t holds_after(const CollapseStopConfig& rule, const Steps& steps) {
  CollapseGuard guard(rule, {1, 3}, int64_t(steps.size()));
  for (size_t i = 0; i < steps.size(); ++i) {
    guard.observe(int64_t(i) + 1, rows_of(steps[i].first, steps[i].second));
    if (guard.holds()) return int64_t(i) + 1;
  }
  return 0;
}

CollapseStopConfig rule_of(const std::string& layers, int64_t logged_steps) {
  return {.at_least = 0.9,
          .layers = *choice_named<CollapseLayers>(layers),
          .logged_steps = logged_steps};
}

}  // namespace

TEST_CASE("the rule holds after the given number of consecutive logged steps") {
  const Steps one_layer = {{0.1, 0.95}, {0.1, 0.9}, {0.1, 0.89}, {0.1, 1}, {0.1, 0.9}, {0.1, 0.99}};
  REQUIRE(holds_after(rule_of("any", 1), one_layer) == 1);
  REQUIRE(holds_after(rule_of("any", 2), one_layer) == 2);
  REQUIRE(holds_after(rule_of("any", 3), one_layer) == 6);  // 0.89 restarted the count
  REQUIRE(holds_after(rule_of("any", 4), one_layer) == 0);
  REQUIRE(holds_after(rule_of("all", 1), one_layer) == 0);
  REQUIRE(holds_after(rule_of("mean", 1), one_layer) == 0);
}

TEST_CASE("`any` needs the same layer throughout") {
  const Steps turns = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
  REQUIRE(holds_after(rule_of("any", 2), turns) == 0);
  const Steps both = {{0.8, 1}, {0.95, 0.875}, {0.9, 0.9}, {0.9, 0.9}};
  REQUIRE(holds_after(rule_of("all", 1), both) == 3);
  REQUIRE(holds_after(rule_of("all", 2), both) == 4);
  REQUIRE(holds_after(rule_of("mean", 4), both) == 4);
}

TEST_CASE("logged steps before `from` do not count") {
  const Steps always(20, {0.1, 0.95});
  const auto from = [&](std::optional<double> share, int64_t logged_steps) {
    CollapseStopConfig rule = rule_of("any", logged_steps);
    rule.from = share;
    return holds_after(rule, always);
  };
  REQUIRE(from(std::nullopt, 3) == 3);
  REQUIRE(from(0, 3) == 3);
  REQUIRE(from(0.05, 3) == 3);  // step 1 counts
  REQUIRE(from(0.25, 1) == 5);
  REQUIRE(from(0.25, 3) == 7);  // steps 5, 6, 7
  REQUIRE(from(0.26, 3) == 8);  // rounded up to step 6
  REQUIRE(from(0.9, 3) == 20);
  REQUIRE(from(0.95, 3) == 0);
  // 0.07 * 100 in double precision is a little over 7.
  CollapseStopConfig exact = rule_of("any", 1);
  exact.from = 0.07;
  REQUIRE(holds_after(exact, Steps(100, {0.1, 0.95})) == 7);
}

TEST_CASE("small values meet at_most, and an absent value meets no bound") {
  CollapseStopConfig rule{
      .measure = "gini", .at_most = 0.2, .layers = CollapseLayers::kAny, .logged_steps = 2};
  const auto twice = [&](double first, double second) {
    return holds_after(rule, {{first, 1}, {second, 1}});
  };
  REQUIRE(twice(0.2, 0.1) == 2);
  REQUIRE(twice(0.2, 0.21) == 0);
  REQUIRE(twice(kNan, kNan) == 0);
  rule.layers = CollapseLayers::kMean;
  rule.at_most = 1;
  REQUIRE(twice(kNan, kNan) == 0);
  REQUIRE(twice(0.5, 0.5) == 2);
}

TEST_CASE("without a rule or without layers the guard never holds") {
  CollapseGuard off(std::nullopt, {1, 3}, 10);
  off.observe(1, rows_of(1, 1));
  REQUIRE(!off.holds());
  CollapseGuard dense(rule_of("all", 1), {}, 10);
  dense.observe(1, std::span<const RouterRow>());
  REQUIRE(!dense.holds());
}

TEST_CASE("the reason for the stop names its values") {
  CollapseGuard guard(rule_of("any", 2), {1, 3}, 10);
  guard.observe(1, rows_of(0.1, 0.95));
  guard.observe(2, rows_of(0.1, 0.9125));
  REQUIRE(guard.because() == "max_load_norm of layer 3 is 0.912, at least 0.9 for 2 logged steps");
  CollapseGuard mean(
      CollapseStopConfig{
          .measure = "gini", .at_most = 0.5, .layers = CollapseLayers::kMean, .logged_steps = 1},
      {1, 3}, 10);
  mean.observe(1, rows_of(0.25, 0.5));
  REQUIRE(mean.because() ==
          "gini in the mean over the layers is 0.375, at most 0.5 for 1 logged step");
  CollapseStopConfig late = rule_of("any", 1);
  late.from = 0.24;
  CollapseGuard counted(late, {1, 3}, 100);
  counted.observe(24, rows_of(0.1, 0.95));
  REQUIRE(counted.because() ==
          "max_load_norm of layer 3 is 0.950, at least 0.9 for 1 logged step, counted from step 24 "
          "on");
}

TEST_CASE("a resumed run continues the count of logged steps") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    TelemetryLayout layout;
    layout.scalars = {"train_loss_nats"};
    layout.layers = {1, 3};
    layout.experts = 4;
    Telemetry telemetry(path, layout);
    for (int64_t step = 10; step <= 50; step += 10) {  // beyond the bound from step 30
      StepRecord& r = telemetry.begin_step(step);
      r.scalars[0] = 5;
      for (RouterRow& row : r.router) row.step.max_load_norm = 0.1;
      if (step >= 30) r.router[1].step.max_load_norm = 0.95;
      telemetry.commit();
    }
  }
  const TelemetryReader telemetry(path);
  CollapseGuard stopped(rule_of("any", 3), {1, 3}, 100);
  stopped.replay(telemetry);
  REQUIRE(stopped.holds());
  CollapseGuard goes_on(rule_of("any", 5), {1, 3}, 100);
  goes_on.replay(telemetry);
  goes_on.observe(60, rows_of(0.1, 0.95));
  REQUIRE(!goes_on.holds());
  goes_on.observe(70, rows_of(0.1, 0.95));
  REQUIRE(goes_on.holds());
  // From step 40 on, two of the logged steps count; with more planned steps none does.
  CollapseStopConfig later = rule_of("any", 3);
  later.from = 0.4;
  CollapseGuard across(later, {1, 3}, 100);
  across.replay(telemetry);
  REQUIRE(!across.holds());
  across.observe(60, rows_of(0.1, 0.95));
  REQUIRE(across.holds());
  CollapseGuard longer(later, {1, 3}, 200);
  longer.replay(telemetry);
  for (int64_t step = 60; step <= 90; step += 10) longer.observe(step, rows_of(0.1, 0.95));
  REQUIRE(!longer.holds());  // 80 and 90 count
  longer.observe(100, rows_of(0.1, 0.95));
  REQUIRE(longer.holds());
}

TEST_CASE("a rule may name the normalised measures of the loads") {
  const std::vector<std::string> names = collapse_measures();
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* name : {"max_load_norm", "entropy_norm", "cv_norm", "dead_for_norm", "gini",
                           "active_norm", "window_participation_norm", "window_gini"}) {
    CAPTURE(name);
    REQUIRE(has(name));
  }
  for (const char* name : {"cv", "max_load", "entropy", "margin", "gate_entropy_norm"}) {
    CAPTURE(name);
    REQUIRE(!has(name));
  }
}

}  // namespace assay::test_collapse_guard
