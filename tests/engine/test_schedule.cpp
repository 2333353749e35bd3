#include <string>

#include "engine/config/schedule.h"
#include "tests/catch.h"

namespace assay::test_schedule {
namespace {

struct Row {
  std::string what;
  Schedule schedule;
  int64_t step;
  double share;  // exact in double
};

const Schedule kLinear = {.steps = 100, .warmup = 4, .warmdown = 20};
const Schedule kCosine = {
    .steps = 100, .warmup = 4, .warmdown = 20, .decay = DecayShape::kCosine, .floor_share = 0.25};

const Row kRows[] = {
    {"warm-up starts at 1/warmup", kLinear, 0, 0.25},
    {"warm-up", kLinear, 2, 0.75},
    {"warm-up ends at the peak", kLinear, 3, 1.0},
    {"hold", kLinear, 4, 1.0},
    {"last held step", kLinear, 79, 1.0},
    {"linear decay starts at the peak", kLinear, 80, 1.0},
    {"halfway", kLinear, 90, 0.5},
    {"last step is 1/warmdown", kLinear, 99, 0.05},
    {"past the end", kLinear, 500, 0.05},
    {"cosine holds", kCosine, 79, 1.0},
    {"cosine halfway", kCosine, 89, 0.625},
    {"cosine ends at the floor", kCosine, 99, 0.25},
    {"no warm-up, no decay", {.steps = 10}, 0, 1.0},
    {"no decay, last step", {.steps = 10}, 9, 1.0},
    {"one step of warm-up", {.steps = 10, .warmup = 1}, 0, 1.0},
    {"one step of linear decay", {.steps = 10, .warmdown = 1}, 9, 1.0},
    {"one step of cosine decay",
     {.steps = 10, .warmdown = 1, .decay = DecayShape::kCosine},
     9,
     0.0},
    {"all decay", {.steps = 4, .warmdown = 4}, 1, 0.75},
};

}  // namespace

TEST_CASE("the schedule, step by step") {
  for (const Row& row : kRows) {
    INFO(row.what << ", step " << row.step);
    REQUIRE(row.schedule.share(row.step) == Approx(row.share).epsilon(1e-14).margin(1e-15));
  }
}

TEST_CASE("cosine decay falls at every step and never leaves [floor, 1]") {
  for (int64_t step = 80; step < 100; ++step) {
    REQUIRE(kCosine.share(step) < kCosine.share(step - 1));
    REQUIRE(kCosine.share(step) >= 0.25);
  }
}

TEST_CASE("the schedule of a configuration") {
  Config config;
  config.run.steps = 9536;
  config.optimizer.lr = 0.0018;
  config.schedule = {
      .warmup = 256, .warmdown = 2048, .decay = DecayShape::kCosine, .floor = 0.00018};
  const Schedule schedule = make_schedule(config);
  REQUIRE(schedule.share(255) == 1.0);
  REQUIRE(schedule.decay_begin() == 9536 - 2048);
  REQUIRE(schedule.share(9535) * config.optimizer.lr == Approx(0.00018).epsilon(1e-14));
}

TEST_CASE("a cosine without a length takes all steps after the warm-up") {
  Config config;
  config.run.steps = 100;
  config.schedule = {.warmup = 10, .decay = DecayShape::kCosine};
  REQUIRE(make_schedule(config).decay_begin() == 10);
  REQUIRE(make_schedule(config).share(99) == 0);
  config.schedule.warmup_fraction = 0.2;
  REQUIRE(make_schedule(config).decay_begin() == 20);
  config.schedule.decay = DecayShape::kLinear;
  REQUIRE(make_schedule(config).warmdown == 0);
}

TEST_CASE("warm-up and decay as shares of the run") {
  Config config;
  const auto steps = [&](int64_t run_steps) {
    config.run.steps = run_steps;
    const Schedule s = make_schedule(config);
    return std::pair(s.warmup, s.warmdown);
  };
  config.schedule.warmup_fraction = 0.02, config.schedule.warmdown_fraction = 0.2;
  REQUIRE(steps(1000) == std::pair<int64_t, int64_t>(20, 200));
  REQUIRE(steps(1001) == std::pair<int64_t, int64_t>(21, 201));
  config.schedule.warmdown_fraction = {};
  config.schedule.warmdown = 7;
  REQUIRE(steps(1000) == std::pair<int64_t, int64_t>(20, 7));
  config.schedule = {.warmup_fraction = 0.0, .warmdown_fraction = 1.0};
  REQUIRE(steps(9) == std::pair<int64_t, int64_t>(0, 9));
  config.schedule = {.warmup_fraction = 0.3, .warmdown_fraction = 0.7};  // 3.3 and 7.7 of 11
  REQUIRE(steps(11) == std::pair<int64_t, int64_t>(4, 7));
}

}  // namespace assay::test_schedule
