#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "engine/telemetry/telemetry.h"
#include "lab/router/analysis.h"
#include "lab/router/text.h"
#include "tests/catch.h"
#include "tests/lab/planted_analysis.h"

namespace assay::test_router_analysis {
namespace {

constexpr int64_t kExperts = 8, kTopK = 2, kWindow = 5, kSteps = 20;
constexpr int64_t kCollapse = 11;  // from this step on, block 2 uses two experts only

// A temporary folder, removed by the destructor.
struct Folder {
  std::string path;
  explicit Folder(const std::string& name)
      : path((std::filesystem::temp_directory_path() / ("assay-router-" + name)).string()) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

// Loads. Block 1: equal for all experts. Block 2: equal for seven experts and 0 for the last; from
// the collapse on, only experts 0 and 1.
std::vector<int64_t> planted(int64_t block, int64_t step) {
  if (block == 1) return std::vector<int64_t>(kExperts, 84);
  if (step < kCollapse) return {96, 96, 96, 96, 96, 96, 96, 0};
  return {336, 336, 0, 0, 0, 0, 0, 0};
}

RouterStats stats_of(std::vector<int64_t>& counts) {
  return router_stats({counts.data(), {kExperts}}, kTopK);
}

// Writes the planted run's telemetry up to a step, with the measures as the engine computes them.
void write_planted(const std::string& folder, int64_t steps) {
  TelemetryLayout layout;
  layout.scalars = {"train_loss_nats"};
  layout.layers = {1, 2};
  layout.experts = kExperts;
  Telemetry telemetry(folder + "/telemetry.db", layout);
  for (int64_t step = 1; step <= steps; ++step) {
    StepRecord& r = telemetry.begin_step(step);
    r.scalars[0] = 6.0 - 0.1 * double(step);
    for (size_t m = 0; m < 2; ++m) {
      const int64_t block = int64_t(m) + 1;
      std::vector<int64_t> counts = planted(block, step);
      for (int64_t e = 0; e < kExperts; ++e) {
        r.layer_counts(int64_t(m), kExperts)[e] = uint32_t(counts[size_t(e)]);
      }
      r.router[m].step = stats_of(counts);
      std::vector<int64_t> sum(kExperts, 0);
      for (int64_t s = std::max<int64_t>(1, step - kWindow + 1); s <= step; ++s) {
        const std::vector<int64_t> at = planted(block, s);
        for (size_t e = 0; e < sum.size(); ++e) sum[e] += at[e];
      }
      r.router[m].window = stats_of(sum);
      // Earlier versions recorded 0 before the first whole window.
      r.router[m].dead_for =
          step < kWindow ? 0 : double(std::count(sum.begin(), sum.end(), int64_t{0}));
    }
    telemetry.commit();
  }
  telemetry.event(steps, "end", "steps");
}

RunRecord record(const std::string& folder) {
  RunRecord run;
  run.path = folder;
  run.name = "planted";
  run.config.model.moe = MoeConfig();
  run.config.model.moe->experts = kExperts;
  run.config.model.moe->top_k = kTopK;
  run.config.model.moe->router.bias_rate = 0;
  run.config.model.moe->router.aux = RouterAux::kNone;
  run.config.run.steps = kSteps;
  run.config.telemetry.window = kWindow;
  run.end = "steps";
  return run;
}

RouterAnalysis analyse_planted(int64_t steps, const std::vector<int64_t>& shown = {}) {
  const Folder folder("planted");
  write_planted(folder.path, steps);
  return analyse_router(record(folder.path), TelemetryReader(telemetry_file(folder.path)), shown);
}

Config balanced_by_bias(BiasRate rate) {
  Config config;
  config.model.moe = MoeConfig();
  config.model.moe->router.bias_rate = rate;
  config.model.moe->router.aux = RouterAux::kNone;
  return config;
}

std::vector<std::string> rules_of(const RouterVerdict& verdict) {
  std::vector<std::string> rules;
  for (const RouterAdvice& advice : verdict.advice) rules.push_back(advice.rule);
  return rules;
}

}  // namespace

TEST_CASE("a planted collapse is found in its layer, at its step, with its dead experts") {
  const RouterAnalysis a = analyse_planted(kSteps);
  REQUIRE(a.experts == kExperts);
  REQUIRE(a.logged == kSteps);
  REQUIRE(a.layers.size() == 2);
  const RouterLayer &even = a.layers[0], &collapsed = a.layers[1];
  REQUIRE(even.layer == 1);
  REQUIRE(!even.saturated_at);
  REQUIRE(even.dead == 0);
  REQUIRE(even.cv == 0);
  REQUIRE(even.ccdf == std::vector<double>{1, 1, 1, 0});
  REQUIRE(collapsed.layer == 2);
  REQUIRE(collapsed.saturated_at == kCollapse);
  REQUIRE(collapsed.max_load_norm == 1);
  REQUIRE(*collapsed.cv_norm == Approx(1));  // exactly K experts are used, so cv is at its ceiling
  REQUIRE(collapsed.dead == 6);
  REQUIRE(collapsed.never_used == 1);
  REQUIRE(collapsed.dead_median == kSteps - (kCollapse - 1));
  REQUIRE(collapsed.dead_longest == kSteps);
  REQUIRE(a.ccdf_loads == std::vector<double>{0.1, 0.5, 1, 2});
  REQUIRE(collapsed.assignments == 672 * kWindow);
  REQUIRE(collapsed.ccdf == std::vector<double>{0.25, 0.25, 0.25, 0.25});
  REQUIRE(a.verdict.state == RouterState::kCollapsed);
  REQUIRE(rules_of(a.verdict) == std::vector<std::string>{"no_balancing"});
}

TEST_CASE("selected steps show the logged values") {
  const RouterAnalysis a = analyse_planted(kSteps, {kCollapse, 2});
  REQUIRE(a.steps.size() == 2);
  REQUIRE(a.steps[0].step == 2);
  REQUIRE(*a.steps[0].loss_nats == Approx(5.8));
  REQUIRE(a.steps[0].saturated == 0);
  REQUIRE(a.steps[0].active_min == 7);
  const RouterAtStep& s = a.steps[1];
  REQUIRE(s.saturated == 1);
  REQUIRE(s.worst_layer == 2);
  REQUIRE(s.max_load_norm_worst == 1);
  REQUIRE(s.max_load_mean == Approx((0.125 + 0.5) / 2));
  REQUIRE(*s.cv_norm_mean == Approx(0.5));
  REQUIRE(s.entropy_min == Approx(std::log(2)));
  REQUIRE(analyse_planted(kSteps).steps.front().step == 1);
  REQUIRE(analyse_planted(kSteps).steps.back().step == kSteps);
}

TEST_CASE("a run before its first whole window is too early to judge") {
  const RouterAnalysis a = analyse_planted(kWindow - 1);
  REQUIRE(a.verdict.state == RouterState::kTooEarly);
  REQUIRE(analyse_planted(1).steps.size() == 1);
}

TEST_CASE("without a whole window no expert is called dead, but those never used are counted") {
  const RouterAnalysis a = analyse_planted(kWindow - 1);
  REQUIRE(!a.layers[1].dead);
  REQUIRE(a.layers[1].never_used == 1);
  REQUIRE(a.layers[0].never_used == 0);
  REQUIRE(!a.steps.back().dead);
  const auto json = router_json(a);
  REQUIRE(json["layers"][1]["dead"].is_null());
  REQUIRE(json["layers"][1]["dead_steps_longest"].is_null());
  REQUIRE(json["layers"][1]["never_used"] == 1);
  REQUIRE(json["steps"].back()["dead_for"].is_null());
  const RouterAnalysis whole = analyse_planted(kSteps, {kWindow - 1, kWindow, kSteps});
  REQUIRE(!whole.steps[0].dead);
  REQUIRE(whole.steps[1].dead == 1);
  REQUIRE(whole.steps[2].dead == 6);
}

TEST_CASE("turnover is the share of assignments that moved") {
  REQUIRE(load_turnover({4, 4, 0, 0}, {0, 0, 4, 4}) == 1);
  REQUIRE(load_turnover({4, 4, 0, 0}, {8, 8, 0, 0}) == 0);
  REQUIRE(load_turnover({2, 1, 1, 0}, {1, 1, 1, 1}) == 0.25);
  REQUIRE(load_turnover({0, 0}, {1, 0}) == 0);
  const RouterAnalysis a = analyse_planted(kCollapse + 2);
  // Of five pairs of steps, one moves 5/7 of the assignments.
  REQUIRE(*a.layers[1].turnover == Approx(5.0 / 7 / 5));
  REQUIRE(*a.layers[0].turnover == 0);
  const RouterAnalysis one = analyse_planted(1);
  REQUIRE(!one.layers[0].turnover);
  REQUIRE(router_json(one)["layers"][0]["turnover"].is_null());
  RouterAnalysis moved = one;
  for (RouterLayer& layer : moved.layers) layer.turnover = 0;
  const auto percents = [](const RouterAnalysis& analysis) {
    const std::string text = router_text(analysis);
    return std::count(text.begin(), text.end(), '%');
  };
  REQUIRE(percents(moved) == percents(one) + 2);
}

TEST_CASE("the distance of logged steps is the usual one of those whose turnover counts") {
  RouterHistory history;
  history.experts = kExperts, history.top_k = kTopK;
  history.steps = {1, 11, 12, 13, 15};
  LayerHistory& layer = history.layers.emplace_back();
  for (const int64_t step : history.steps) {
    layer.measure["max_load_norm"].push_back({.step = step, .value = 0.3});
  }
  layer.window_counts = std::vector<uint64_t>(kExperts, 9);
  for (const auto& [window, gap] : {std::pair<int64_t, int64_t>{1, 2}, {3, 1}, {4, 2}, {9, 2}}) {
    INFO(window);
    history.window = window;
    REQUIRE(analyse_router(record(""), history, {}, {1}).step_gap == gap);
  }
  history.steps = {1};
  layer.measure["max_load_norm"].resize(1);
  REQUIRE(analyse_router(record(""), history, {}, {1}).step_gap == 1);
}

TEST_CASE("the floor of turnover is what uniform sampling gives, and at most 1") {
  const auto floor_at = [](double assignments) {
    RouterHistory history;
    history.experts = 16384, history.top_k = 1, history.window = 1;
    history.steps = {1};
    LayerHistory& layer = history.layers.emplace_back();
    layer.measure["max_load_norm"] = {{1, 0.1}};
    layer.measure["assignments"] = {{1, assignments}};
    layer.window_counts = std::vector<uint64_t>(16384, 1);
    return analyse_router(record(""), history, {}, {1}).turnover_floor;
  };
  REQUIRE(floor_at(0) == 0);
  // sqrt((E - K) / (pi A)) would be 2.257 and 0.080.
  REQUIRE(floor_at(1024) == Approx(0.9412).epsilon(1e-3));
  REQUIRE(floor_at(50 * 16384) == Approx(0.0798).epsilon(2e-3));
}

TEST_CASE("the load's excess is 0 where even and 1 at its ceiling") {
  REQUIRE(load_excess(0.5, 4, 2) == 0);
  REQUIRE(load_excess(1, 4, 2) == 1);
  REQUIRE(load_excess(0.75, 4, 2) == 0.5);
  REQUIRE(load_excess(1, 2, 2) == 0);
}

TEST_CASE("each state has its rule") {
  const Config config = balanced_by_bias(0);
  REQUIRE(router_verdict(healthy_analysis(), config).state == RouterState::kHealthy);
  struct Row {
    RouterState state;
    void (*change)(RouterAnalysis&);
  };
  const std::vector<Row> rows = {
      Row{RouterState::kCollapsed, [](RouterAnalysis& a) { a.layers[0].max_load_norm = 0.9; }},
      Row{RouterState::kCollapsed, [](RouterAnalysis& a) { a.layers[0].active_norm = 0.49; }},
      Row{RouterState::kUneven, [](RouterAnalysis& a) { a.layers[0].max_load_norm = 0.54; }},
      Row{RouterState::kHealthy, [](RouterAnalysis& a) { a.layers[0].max_load_norm = 0.53; }},
      Row{RouterState::kUneven, [](RouterAnalysis& a) { a.layers[0].active_norm = 0.94; }},
      Row{RouterState::kUneven, [](RouterAnalysis& a) { a.layers[0].entropy_norm = 0.89; }},
      Row{RouterState::kRecovered, [](RouterAnalysis& a) { a.layers[0].saturated_at = 20; }},
      Row{RouterState::kTooEarly, [](RouterAnalysis& a) { a.logged = 99; }},
      Row{RouterState::kCollapsed,
          [](RouterAnalysis& a) {
            a.logged = 99;
            a.end = "collapse_stop";
          }},
      Row{RouterState::kHealthy, [](RouterAnalysis& a) { a.top_k = a.experts; }}};
  for (const Row& row : rows) {
    RouterAnalysis a = healthy_analysis();
    row.change(a);
    CAPTURE(state_word(row.state));
    REQUIRE(router_verdict(a, config).state == row.state);
  }
}

TEST_CASE("advice depends on the effect of the bias") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.bias_range = 0.02;
  l.margin = 0.1;
  const RouterVerdict slow = router_verdict(a, balanced_by_bias(1e-4));
  REQUIRE(rules_of(slow) == std::vector<std::string>{"bias_too_slow"});
  // Two biases can diverge by 2e-4 per step.
  REQUIRE(slow.advice[0].because.find("after about 500 steps, the run had 400") !=
          std::string::npos);
  REQUIRE(slow.advice[0].advice.find("bias_rate=0.0005") != std::string::npos);
  Config follows = balanced_by_bias(1e-4);
  follows.model.moe->router.bias_follows_lr = true;
  REQUIRE(router_verdict(a, follows)
              .advice[0]
              .because.find(
                  "at bias_rate 0.0001 (at the peak learning rate) two experts change places") !=
          std::string::npos);
  // At 1e-3 the bias can cross the selection margin within a hundred steps. The first choice may
  // lead by more than the margin.
  REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-3))) ==
          std::vector<std::string>{"bias_too_weak"});
  l.lead = 0.4;
  const RouterVerdict behind = router_verdict(a, balanced_by_bias(1e-3));
  REQUIRE(rules_of(behind) == std::vector<std::string>{"bias_behind_lead"});
  REQUIRE(behind.advice[0].because.find("by 0.4; ") != std::string::npos);
  REQUIRE(behind.advice[0].because.find("after about 200 steps, the run had 400") !=
          std::string::npos);
  REQUIRE(behind.advice[0].advice.find("bias_rate=0.002") != std::string::npos);
  l.bias_range = 0.3;
  REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-2))) ==
          std::vector<std::string>{"bias_too_weak"});
  l.turnover = 0.04;
  REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-2))) ==
          std::vector<std::string>{"bias_overshoots"});
  a.step_gap = 5;
  REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-2))) ==
          std::vector<std::string>{"turns_unclear"});
  l.bias_range = 29;
  REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-2))) ==
          std::vector<std::string>{"bias_at_clamp"});
}

TEST_CASE("a bias that overshoots is found where sampling alone moves most assignments") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.bias_range = 0.3;
  l.margin = 0.1;
  struct Row {
    double floor, turnover;
    const char* rule;
  };
  // Three times the floor up to 0.2; above it half of the way from there to 1.
  for (const Row& row : {Row{0.2, 0.59, "bias_too_weak"},
                         {0.2, 0.61, "bias_overshoots"},
                         {0.5, 0.74, "bias_too_weak"},
                         {0.5, 0.76, "bias_overshoots"},
                         {0.9, 0.96, "bias_overshoots"},
                         {0, 0.5, "bias_too_weak"}}) {
    INFO(row.floor << " " << row.turnover);
    a.turnover_floor = row.floor;
    l.turnover = row.turnover;
    REQUIRE(rules_of(router_verdict(a, balanced_by_bias(1e-2))) ==
            std::vector<std::string>{row.rule});
  }
}

TEST_CASE("advice on bias_rate auto is about its steps") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.bias_range = 0.02;
  l.margin = 0.1;
  l.lead = 0.4;
  Config config = balanced_by_bias(BiasRate::measured());
  const RouterVerdict weak = router_verdict(a, config);
  REQUIRE(rules_of(weak) == std::vector<std::string>{"bias_too_weak"});
  REQUIRE(weak.advice[0].because.find("at bias_rate auto (now 0.002)") != std::string::npos);
  REQUIRE(weak.advice[0].advice.find("bias_steps=33,") != std::string::npos);
  config.model.moe->router.bias_steps = 1000;
  const RouterVerdict slow = router_verdict(a, config);
  REQUIRE(rules_of(slow) == std::vector<std::string>{"bias_too_slow"});
  REQUIRE(slow.advice[0].advice.find("bias_steps=100,") != std::string::npos);
  config.model.moe->router.bias_steps = 10;
  l.bias_range = 0.3;
  l.turnover = 0.04;
  const RouterVerdict fast = router_verdict(a, config);
  REQUIRE(rules_of(fast) == std::vector<std::string>{"bias_overshoots"});
  REQUIRE(
      fast.advice[0].advice ==
      "more model.moe.router.bias_steps than 10, or --set model.moe.router.bias_follows_lr=true");
}

TEST_CASE("without a lead the rate of bias_rate auto is unknown, and no steps follow from it") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.bias_range = 0.02;
  l.margin = 0.1;
  const RouterVerdict weak = router_verdict(a, balanced_by_bias(BiasRate::measured()));
  REQUIRE(rules_of(weak) == std::vector<std::string>{"bias_too_weak"});
  REQUIRE(weak.advice[0].because.find("inf") == std::string::npos);
  REQUIRE(weak.advice[0].because.find("at bias_rate auto the loads") != std::string::npos);
}

TEST_CASE("advice on the proportional rule does not count its steps") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.bias_range = 0.02;
  l.margin = 0.1;
  l.lead = 0.4;
  Config config = balanced_by_bias(1e-4);
  REQUIRE(rules_of(router_verdict(a, config)) == std::vector<std::string>{"bias_too_slow"});
  config.model.moe->router.bias_rule = BiasRule::kProportional;
  const RouterVerdict weak = router_verdict(a, config);
  REQUIRE(rules_of(weak) == std::vector<std::string>{"bias_too_weak"});
  REQUIRE(weak.advice[0].advice.find("model.moe.router.bias_rate=0.001, or model.moe.router.aux") !=
          std::string::npos);
}

TEST_CASE("advice names each of the other causes") {
  RouterAnalysis a = healthy_analysis();
  RouterLayer& l = a.layers[0];
  l.max_load_norm = 0.95;
  l.saturated_at = 100;
  l.gate_entropy_norm = 0.1;
  Config config = balanced_by_bias(0);
  REQUIRE(rules_of(router_verdict(a, config)) ==
          std::vector<std::string>{"no_balancing", "hard_gates", "saturated_early"});
  const RouterVerdict all = router_verdict(a, config);
  REQUIRE(all.advice[0].advice ==
          "--set model.moe.router.aux=switch --set model.moe.router.aux_alpha=0.01, or --set "
          "model.moe.router.bias_rate=0.001");
  REQUIRE(all.advice[2].because.starts_with(
      strprintf("layer %ld, the first to saturate, did so at step 100 of ", long(l.layer))));
  config.model.moe->top_k = 1;
  config.model.moe->router.aux = RouterAux::kGates;
  config.model.moe->router.aux_alpha = 1e-3;
  const RouterAdvice only_gate = router_verdict(a, config).advice[0];
  REQUIRE(only_gate.rule == "no_balancing");
  REQUIRE(only_gate.because.find("without effect on a token's only gate") != std::string::npos);
  REQUIRE(router_verdict(a, config).advice[1].rule == "hard_gates");
  config.model.moe->router.aux = RouterAux::kSwitch;
  l.saturated_at = 101;
  l.gate_entropy_norm = 0.5;
  const RouterVerdict verdict = router_verdict(a, config);
  REQUIRE(rules_of(verdict) == std::vector<std::string>{"aux_too_weak"});
  REQUIRE(verdict.advice[0].advice.find("--set model.moe.router.aux_alpha=0.01;") !=
          std::string::npos);
  a.layers[0].max_load_norm = 0.1;
  a.layers[0].saturated_at = std::nullopt;
  REQUIRE(router_verdict(a, config).advice.empty());
}

TEST_CASE("text and JSON agree") {
  const RouterAnalysis a = analyse_planted(kSteps);
  const std::string text = router_text(a);
  REQUIRE(text.find("layer 2 at 11") != std::string::npos);
  REQUIRE(text.find("verdict: collapsed") != std::string::npos);
  const nlohmann::ordered_json json = router_json(a);
  REQUIRE(json["layers"][1]["saturated_at_step"] == kCollapse);
  REQUIRE(json["layers"][0]["saturated_at_step"].is_null());
  REQUIRE(json["layers"][0]["margin"].is_null());
  // Eight of eight experts and two of eight have all the work, evenly.
  REQUIRE(text.find("H/ln E  exp(H)/E") != std::string::npos);
  REQUIRE(json["layers"][0]["e_eff_norm"].get<double>() == Approx(1));
  REQUIRE(json["layers"][1]["e_eff_norm"].get<double>() == Approx(0.25));
  REQUIRE(json["steps"].back()["e_eff_norm_min"].get<double>() == Approx(0.25));
  REQUIRE(json["verdict"]["advice"][0]["rule"] == "no_balancing");
  REQUIRE(json["steps"].size() == a.steps.size());
}

TEST_CASE("runs that cannot be analysed are refused") {
  const Folder folder("refused");
  RunRecord run = record(folder.path);
  write_planted(folder.path, 3);
  const TelemetryReader telemetry(telemetry_file(folder.path));
  REQUIRE_THROWS_AS(analyse_router(run, telemetry, {4}), UserError);
  REQUIRE_THROWS_AS(analyse_router(run, telemetry, {0}), UserError);
  run.config.model.moe->first_dense_layers = run.config.model.layers;
  REQUIRE_THROWS_WITH(analyse_router(run, telemetry, {}),
                      Catch::Matchers::ContainsSubstring("the model is dense"));
  run.config.model.moe.reset();
  REQUIRE_THROWS_WITH(analyse_router(run, telemetry, {}),
                      Catch::Matchers::ContainsSubstring("the model is dense"));
}

}  // namespace assay::test_router_analysis
