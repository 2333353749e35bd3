#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/other_work.h"
#include "tests/catch.h"

namespace assay::test_other_work {
namespace {

struct Named final : Evaluator {
  int64_t steps;
  bool at_landings;
  Named(int64_t steps, bool at_landings) : steps(steps), at_landings(at_landings) {}
  std::string task() const override { return "val"; }
  bool due(const EvalMoment& at) const override {
    return at.last || (at_landings && at.landing) || (steps > 0 && at.steps_done % steps == 0);
  }
  int64_t every() const override { return steps; }
  std::optional<Evaluation> evaluate(Exec, Model&, const EvalMoment&, const EvalWatch&) override {
    return std::nullopt;
  }
};

// By asking at every step.
int64_t counted(const Named& evaluator, const std::vector<Landing>& landings, int64_t from,
                int64_t steps) {
  int64_t left = 0;
  for (int64_t step = from; step <= steps; ++step) {
    bool landing = false;
    for (const Landing& l : landings) landing = landing || l.step == step;
    left += evaluator.due({.steps_done = step, .landing = landing, .last = step == steps}) ? 1 : 0;
  }
  return left;
}

RunConfig run_of(int64_t steps) {
  RunConfig run;
  run.steps = steps;
  run.checkpoint_minutes = 0;
  return run;
}

}  // namespace

TEST_CASE("evaluations are counted as they are made") {
  const std::vector<Landing> landings = {{0.25, 25}, {0.5, 50}, {0.97, 97}, {1, 100}};
  for (const int64_t every : {0, 1, 3, 7, 50, 100, 1000}) {
    for (const bool at_landings : {false, true}) {
      Named evaluator(every, at_landings);
      Evaluator* const all[] = {&evaluator};
      const OtherWork other(run_of(100), all, landings);
      for (int64_t done = 1; done <= 100; ++done) {
        INFO(every << " " << at_landings << " " << done);
        REQUIRE(other.evaluations_left(evaluator, done) == counted(evaluator, landings, done, 100));
      }
    }
  }
}

TEST_CASE("saves are counted by steps, at landings, by time and at the end") {
  const std::vector<Landing> landings = {{0.3, 30}, {0.55, 55}, {1, 100}};
  RunConfig run = run_of(100);
  const auto left = [&](int64_t done, double steps_s, double save_s = 0) {
    OtherWork other(run, {}, landings);
    if (save_s > 0) other.saved(save_s);
    return other.saves_left(done, steps_s);
  };
  REQUIRE(left(1, 1e6) == 3);  // 30, 55, the end
  REQUIRE(left(56, 1e6) == 1);
  run.checkpoint_every = 10;
  REQUIRE(left(1, 0) == 11);  // 10, ..., 90, 55, 100
  run.milestone_every = 15;
  REQUIRE(left(1, 0) == 14);  // also 15, 45, 75
  REQUIRE(left(91, 0) == 1);
  run = run_of(100);
  run.checkpoint_minutes = 5;
  REQUIRE(left(60, 3000) == 11);     // every 300 s
  REQUIRE(left(60, 3000, 30) == 6);  // every 600 s: a save of 30 s is at most 5%
  REQUIRE(left(98, 1e9) == 3);       // not more often than after each step
  REQUIRE(left(60, std::nan("")) == 1);
}

TEST_CASE("the time left is that of evaluations and saves at their mean, once they are measured") {
  Named validation(10, false), score(0, false);
  Evaluator* const all[] = {&validation, &score};
  OtherWork other(run_of(100), all, {});
  REQUIRE(other.seconds_left(50, 1000) == 0);
  other.evaluated(validation, 1);
  other.evaluated(validation, 3);
  REQUIRE(other.seconds_left(50, 1000) == 12);  // 50, 60, ..., 100
  REQUIRE(other.seconds_left(51, 1000) == 10);
  other.saved(7);
  REQUIRE(other.seconds_left(51, 1000) == 17);
  other.evaluated(score, 100);
  REQUIRE(other.seconds_left(100, 0) == 109);
}

}  // namespace assay::test_other_work
