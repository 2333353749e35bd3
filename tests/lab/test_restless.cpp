#include <algorithm>
#include <cmath>
#include <random>

#include "engine/telemetry/router_stats.h"
#include "lab/router/analysis.h"
#include "lab/runs/step_loads.h"
#include "tests/catch.h"
#include "tests/lab/planted_analysis.h"

namespace assay::test_restless {
namespace {

using Counts = std::vector<int64_t>;

// One layer with these counts at its logged steps, all of them in the window, as the engine and
// `assay router` measure it.
LayerHealth layer_of(const std::vector<Counts>& steps, int64_t top_k) {
  RouterCurves curves;
  Counts sum(steps.front().size(), 0);
  const auto stats_of = [&](Counts& counts) {
    return router_stats({counts.data(), {int64_t(counts.size())}}, top_k);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    Counts counts = steps[i];
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += counts[e];
    const RouterStats s = stats_of(counts);
    const int64_t step = int64_t(i) + 1;
    curves["cv"].push_back({.step = step, .value = s.cv});
    curves["cv_floor"].push_back({.step = step, .value = s.cv_floor});
    curves["max_load_norm"].push_back({.step = step, .value = s.max_load_norm});
  }
  const RouterStats window = stats_of(sum);
  return {.layer = 1,
          .max_load_norm = window.max_load_norm,
          .active_norm = window.active_norm,
          .cv_norm = window.cv_norm,
          .entropy_norm = window.entropy_norm,
          .steps = step_loads(curves, int64_t(steps.size()), window.cv),
          .assignments = window.assignments};
}

RouterHealth health_of_steps(const std::vector<Counts>& steps, int64_t top_k) {
  const LayerHealth layer = layer_of(steps, top_k);
  RouterHealth health = health_of({&layer, 1}, int64_t(steps.front().size()), top_k);
  health.logged = health.window = int64_t(steps.size());
  return health;
}

RouterState state_of(const std::vector<Counts>& steps, int64_t top_k) {
  return router_state(health_of_steps(steps, top_k));
}

// K experts take all tokens of a step, the next K those of the next step.
std::vector<Counts> taking_turns(int64_t experts, int64_t top_k, int64_t steps) {
  std::vector<Counts> all;
  for (int64_t s = 0; s < steps; ++s) {
    Counts counts(size_t(experts), 0);
    for (int64_t k = 0; k < top_k; ++k) counts[size_t((s * top_k + k) % experts)] = 2048;
    all.push_back(counts);
  }
  return all;
}

// One expert is in every token's choice, another one at each step; the others are equal.
std::vector<Counts> one_in_turn(int64_t experts, int64_t top_k, int64_t tokens, int64_t steps) {
  std::vector<Counts> all;
  for (int64_t s = 0; s < steps; ++s) {
    Counts counts(size_t(experts), tokens * (top_k - 1) / (experts - 1));
    counts[size_t(s % experts)] = tokens;
    all.push_back(counts);
  }
  return all;
}

// Each token draws K distinct experts, all alike.
std::vector<Counts> sampled(int64_t experts, int64_t top_k, int64_t tokens, int64_t steps) {
  std::mt19937_64 random(7);
  std::vector<Counts> all;
  for (int64_t s = 0; s < steps; ++s) {
    Counts counts(size_t(experts), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<uint64_t> chosen;
      while (int64_t(chosen.size()) < top_k) {
        const uint64_t e = random() % uint64_t(experts);
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
      }
      for (const uint64_t e : chosen) ++counts[e];
    }
    all.push_back(counts);
  }
  return all;
}

// A layer that is even over the window, at the steps as given. K = 4 of 64.
RouterAnalysis even_with(const StepLoads& steps) {
  RouterAnalysis a = healthy_analysis();
  a.turnover_floor = 0.2;
  a.layers[0].turnover = 0.3;
  a.layers[0].steps = steps;
  return a;
}

Config with_bias(double rate) {
  Config config;
  config.model.moe = MoeConfig();
  config.model.moe->router.bias_rate = rate;
  config.model.moe->router.aux = RouterAux::kNone;
  return config;
}

}  // namespace

TEST_CASE("restless: experts that take turns are not healthy, however even the window is") {
  for (const auto& [experts, top_k] : {std::pair<int64_t, int64_t>{8, 2}, {64, 4}, {1024, 4}}) {
    INFO(experts);
    RouterHealth health = health_of_steps(taking_turns(experts, top_k, experts / top_k), top_k);
    REQUIRE(health.worst_max_load_norm == double(top_k) / double(experts));
    REQUIRE(router_state(health) == RouterState::kRestless);
    health.layers[0].saturated_at = 1;  // as it is at every step
    REQUIRE(router_state(health) == RouterState::kRestless);
    REQUIRE(health.text().find("at single steps K*max_load 1.00 and cv ") != std::string::npos);
  }
  // One expert at a time changes cv little: it is 38% of the mean load at 4 of 8, 5% at 7 of 8.
  REQUIRE(state_of(one_in_turn(8, 4, 2100, 16), 4) == RouterState::kRestless);
  REQUIRE(state_of(one_in_turn(8, 7, 2100, 16), 7) == RouterState::kRestless);
}

TEST_CASE("restless: sampling alone never is, with few tokens and with many") {
  struct Shape {
    int64_t experts, top_k, tokens;
  };
  for (const Shape& s : {Shape{4096, 8, 64},
                         {4096, 8, 512},
                         {1024, 4, 2048},
                         {16, 4, 64},
                         {8, 7, 64},
                         {8, 4, 2048},
                         {2, 1, 64}}) {
    INFO(s.experts << " " << s.top_k << " " << s.tokens);
    const std::vector<Counts> steps = sampled(s.experts, s.top_k, s.tokens, 40);
    const LayerHealth layer = layer_of(steps, s.top_k);
    REQUIRE(layer.steps);
    REQUIRE(!is_restless(*layer.steps, layer.max_load_norm, s.experts, s.top_k));
  }
}

TEST_CASE(
    "restless: the same uneven experts at every step are not, nor is a collapse that is over") {
  const Counts uneven = {4000, 1000, 1000, 1000, 1000, 1000, 1000, 1000};
  const LayerHealth steady = layer_of(std::vector<Counts>(10, uneven), 2);
  REQUIRE(steady.steps->swing < 1);
  REQUIRE(!is_restless(*steady.steps, steady.max_load_norm, 8, 2));
  // Saturated at four of ten steps, and even since: the median does not count them.
  std::vector<Counts> over(10, Counts(8, 512));
  for (size_t s = 0; s < 4; ++s) over[s] = {2048, 2048, 0, 0, 0, 0, 0, 0};
  const LayerHealth recovered = layer_of(over, 2);
  REQUIRE(!is_restless(*recovered.steps, recovered.max_load_norm, 8, 2));
}

TEST_CASE("restless: the rule at its bounds") {
  REQUIRE(restless_swing(64, 4) == 50);
  REQUIRE(std::abs(restless_swing(8, 7) - 50 * std::sqrt(1.0 / 7)) < 1e-12);
  const auto by_swing = [](double swing, double floor, int64_t top_k = 4) {
    return is_restless({.cv_floor = floor, .max_load_norm = 0.5, .swing = swing}, 0.5, 8, top_k);
  };
  REQUIRE((by_swing(50, 10) && !by_swing(49.9, 10)));
  REQUIRE((by_swing(80, 80) && !by_swing(80, 80.1)));  // sampling gives more
  REQUIRE((by_swing(19, 1, 7) && !by_swing(18.8, 1, 7)));
  REQUIRE(!by_swing(80, 0, 8));  // K = E
  const auto by_load = [](double step, double window) {
    return is_restless({.cv_floor = 1, .max_load_norm = step, .swing = 20}, window, 8, 4);
  };
  REQUIRE((by_load(0.75, 0.5) && !by_load(0.74, 0.5) && !by_load(0.75, 0.51)));
}

TEST_CASE("restless: medians of the last W steps, without what the window and sampling explain") {
  RouterCurves curves;
  const double cv[] = {900, 130, 140, 50};
  for (int64_t i = 0; i < 4; ++i) {
    curves["cv"].push_back({.step = i + 1, .value = cv[i]});
    curves["cv_floor"].push_back({.step = i + 1, .value = 30});
  }
  REQUIRE(!step_loads(curves, 3, 40));  // an earlier version may not have measured one of them
  curves["max_load_norm"] = {{1, 0.9}, {2, 0.1}, {3, 0.3}, {4, 0.2}};
  const StepLoads steps = step_loads(curves, 3, 40).value();
  REQUIRE(steps.cv == 130);
  REQUIRE(steps.cv_floor == 30);
  REQUIRE(steps.max_load_norm == 0.2);
  REQUIRE(std::abs(steps.swing - 120) < 1e-12);
  REQUIRE(step_loads(curves, 3, 200)->swing == 0);
  // The probes of the same steps, which need not be at each of them.
  REQUIRE((!steps.overlap && !steps.changed));
  curves["overlap"] = {{1, 0.1}};
  REQUIRE(!step_loads(curves, 3, 40)->overlap);
  curves["overlap"] = {{1, 0.1}, {2, 0.5}, {4, 0.7}};
  REQUIRE(step_loads(curves, 3, 40)->overlap == Approx(0.6));
  REQUIRE(step_loads(curves, 3, 40)->changed == Approx(0.8));
  REQUIRE(step_loads(curves, 100, 40)->overlap == 0.5);
  REQUIRE(step_loads(curves, 100, 40)->changed == Approx(1.7));
}

TEST_CASE("restless: the verdict has the numbers and says how to slow the bias") {
  const StepLoads turns{
      .cv = 140, .cv_floor = 35, .max_load_norm = 0.2, .swing = 126, .overlap = 0.6, .changed = 4};
  RouterAnalysis a = even_with(turns);
  const RouterVerdict verdict = router_verdict(a, with_bias(1e-2));
  REQUIRE(verdict.state == RouterState::kRestless);
  REQUIRE(state_word(verdict.state) == "restless");
  REQUIRE(verdict.rule.find("at least 50% of their mean") != std::string::npos);
  REQUIRE(verdict.because.find(
              "at single steps K*max_load 0.20 and cv 140% of the mean load "
              "(layer 3); sampling alone gives a cv of 35%, loads swing by 126%, 60% of the "
              "choices on fixed tokens stay from probe to probe") != std::string::npos);
  REQUIRE(verdict.advice.size() == 1);
  REQUIRE(verdict.advice[0].rule == "scores_move");
  REQUIRE(verdict.advice[0].because.starts_with("layer 3: the loads of a step swing by 126%"));
  REQUIRE(verdict.advice[0].advice.starts_with("a smaller optimizer.router_lr"));
  // A quarter of the swing, beyond sampling, from one logged step to the next.
  a.layers[0].turnover = 0.37;
  REQUIRE(router_verdict(a, with_bias(1e-2)).advice[0].rule == "scores_move");
  a.layers[0].turnover = 0.38;
  const RouterVerdict fast = router_verdict(a, with_bias(1e-2));
  REQUIRE(fast.advice.size() == 1);
  REQUIRE(fast.advice[0].rule == "bias_overshoots");
  REQUIRE(fast.advice[0].because.ends_with(
      "around those of the window; of the choices on fixed tokens 60.0% stay from one probe to the "
      "next; 38.0% of the assignments move to other experts between logged steps, sampling alone "
      "gives 20.0%"));
  REQUIRE(fast.advice[0].advice ==
          "a smaller model.moe.router.bias_rate than 0.01, or --set "
          "model.moe.router.bias_follows_lr=true");
  Config follows = with_bias(1e-2);
  follows.model.moe->router.bias_follows_lr = true;
  REQUIRE(router_verdict(a, follows).advice[0].advice ==
          "a smaller model.moe.router.bias_rate than 0.01");
  REQUIRE(router_verdict(a, with_bias(0)).advice[0].rule == "scores_move");
  RouterAnalysis one_step = a;
  one_step.layers[0].turnover = std::nullopt;
  REQUIRE(router_verdict(one_step, with_bias(1e-2))
              .advice[0]
              .because.ends_with("; no step was logged before this one to compare the loads with"));
  a.layers[0].saturated_at = 20;
  const RouterVerdict after = router_verdict(a, with_bias(1e-2));
  REQUIRE(after.state == RouterState::kRestless);
  REQUIRE(after.because.ends_with("; first saturated at step 20"));
  a.layers[0].entropy_norm = 0.89;  // the window shows it
  REQUIRE(router_verdict(a, with_bias(1e-2)).state == RouterState::kUneven);
  // An even router has its numbers too.
  const RouterVerdict calm = router_verdict(
      even_with({.cv = 40, .cv_floor = 35, .max_load_norm = 0.1, .swing = 15}), with_bias(1e-2));
  REQUIRE(calm.state == RouterState::kHealthy);
  REQUIRE(calm.because.ends_with("loads swing by 15%"));
  REQUIRE(calm.advice.empty());
}

TEST_CASE("restless: where the router keeps its choices the batches differ, however much it is") {
  const auto said = [](std::optional<double> overlap, std::optional<double> changed) {
    return router_verdict(even_with({.cv = 140,
                                     .cv_floor = 35,
                                     .max_load_norm = 0.2,
                                     .swing = 120,
                                     .overlap = overlap,
                                     .changed = changed}),
                          with_bias(1e-2));
  };
  const RouterVerdict batches = said(0.97, 0.29);  // of 0.3, a quarter of the swing
  REQUIRE(batches.state == RouterState::kHealthy);
  REQUIRE(batches.because.ends_with(
      "loads swing by 120%, 97% of the choices on fixed tokens stay from probe to probe"));
  REQUIRE(batches.advice.empty());
  const RouterVerdict router = said(0.97, 0.3);
  REQUIRE(router.state == RouterState::kRestless);
  REQUIRE(
      router.rule.ends_with("and the choices on fixed tokens, if measured, change by at least 0.25 "
                            "of the swing, or of 177% where it is more; what batches hold counts "
                            "too"));
  // An earlier run, or one shorter than two probes.
  const RouterVerdict unknown = said({}, {});
  REQUIRE(unknown.state == RouterState::kRestless);
  REQUIRE(unknown.advice.at(0).because.find("so what the batches hold may be a part of it") !=
          std::string::npos);
  // So has one expert in turn in every token's choice, which cv hardly shows.
  StepLoads turns{.cv_floor = 1, .max_load_norm = 1, .swing = 20, .changed = 0.06};
  REQUIRE(is_restless(turns, 0.5, 8, 4));
  turns.changed = 0.04;
  REQUIRE(!is_restless(turns, 0.5, 8, 4));
}

TEST_CASE("restless: one probe is enough for turns of any size, as no more than all can move") {
  // 4096 experts, top-7, each step another seven: the swing is 2400% of the mean load.
  const auto taking = [](double swing, double changed) {
    return is_restless({.cv_floor = 50, .max_load_norm = 1, .swing = swing, .changed = changed},
                       0.002, 4096, 7);
  };
  REQUIRE(taking(2400, 1));
  REQUIRE((taking(2400, 0.444) && !taking(2400, 0.442)));  // sqrt(pi) / 4 of the choices
  REQUIRE((taking(170, 0.426) && !taking(170, 0.424)));    // a quarter of a smaller swing
  // Nor can the turnover between two steps be more than all assignments.
  RouterAnalysis a =
      even_with({.cv = 385, .cv_floor = 35, .max_load_norm = 0.2, .swing = 380, .changed = 0.5});
  a.layers[0].turnover = 0.6;
  const RouterVerdict verdict = router_verdict(a, with_bias(1e-2));
  REQUIRE(verdict.state == RouterState::kRestless);
  REQUIRE(verdict.advice[0].rule == "bias_overshoots");
}

TEST_CASE("restless: logged steps that are not neighbours do not show that a bias overshoots") {
  RouterAnalysis a = even_with({.cv = 140, .cv_floor = 35, .max_load_norm = 0.2, .swing = 126});
  a.step_gap = 5;
  REQUIRE(router_verdict(a, with_bias(1e-2)).advice[0].rule == "scores_move");
  a.layers[0].turnover = 0.38;
  const RouterVerdict unclear = router_verdict(a, with_bias(1e-2));
  REQUIRE(unclear.advice.size() == 1);
  REQUIRE(unclear.advice[0].rule == "turns_unclear");
  REQUIRE(unclear.advice[0].because.ends_with(
      "logged steps are usually 5 steps apart, over which a bias that overshoots and scores that "
      "drift look alike"));
  REQUIRE(unclear.advice[0].advice ==
          "--set run.log_every=1 tells them apart; of a bias that overshoots: a smaller "
          "model.moe.router.bias_rate than 0.01, or --set model.moe.router.bias_follows_lr=true; "
          "of scores that drift: a smaller optimizer.router_lr");
  REQUIRE(router_verdict(a, with_bias(0)).advice[0].rule == "scores_move");
}

TEST_CASE("restless: the numbers are those of the restless layer with the largest swing") {
  std::vector<LayerHealth> layers(3);
  for (int64_t i = 0; i < 3; ++i) {
    layers[size_t(i)].layer = i;
    layers[size_t(i)].max_load_norm = 0.1;
  }
  layers[0].steps = StepLoads{.cv = 200, .cv_floor = 190, .max_load_norm = 0.2, .swing = 62};
  layers[1].steps = StepLoads{.cv = 60, .cv_floor = 10, .max_load_norm = 0.2, .swing = 55};
  layers[2].steps = StepLoads{.cv = 70, .cv_floor = 10, .max_load_norm = 0.2, .swing = 65};
  const RouterHealth health = health_of(layers, 64, 4);
  REQUIRE(health.restless == std::vector<int64_t>{1, 2});
  REQUIRE(health.worst_steps_layer == 2);
  REQUIRE(health_of({layers.data(), 2}, 64, 4).worst_steps_layer == 1);
  REQUIRE(health_of({layers.data(), 1}, 64, 4).restless.empty());
}

TEST_CASE("restless: where the window shows it all, the single steps named are the worst layer's") {
  std::vector<LayerHealth> layers(3);
  const double cv[] = {8, 1824, 139};
  for (size_t i = 0; i < 3; ++i) {
    layers[i] = {.layer = int64_t(i), .max_load_norm = i == 1 ? 0.94 : 0.1};
    layers[i].steps = StepLoads{.cv = cv[i], .cv_floor = 5, .max_load_norm = 0.1};
  }
  layers[0].steps->swing = 4;  // less than sampling gives; the others have none
  layers[1].steps->max_load_norm = 0.94;
  const RouterHealth health = health_of(layers, 4096, 7);
  REQUIRE(health.worst_steps_layer == 1);
  REQUIRE(health.steps_text().starts_with(
      "at single steps K*max_load 0.94 and cv 1824% of the mean load (layer 1)"));
}

}  // namespace assay::test_restless
