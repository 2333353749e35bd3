// assay early-warning on planted runs, by hand.
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "lab/router/early_warning.h"
#include "tests/catch.h"

namespace assay::test_early_warning {

namespace {

// Four configurations of two seeds; the first two collapse. "good" separates them, "same" is equal
// for all, "noise" knows nothing, "late" is known of one run only.
std::vector<WarningRun> planted() {
  std::vector<WarningRun> runs;
  for (int c = 0; c < 4; ++c) {
    for (int seed = 0; seed < 2; ++seed) {
      WarningRun run;
      run.name = std::to_string(c) + "/" + std::to_string(seed);
      run.configuration = std::to_string(c);
      run.end = c < 2 ? RouterState::kCollapsed : RouterState::kUneven;
      run.steps = 100;
      if (c < 2) run.saturated_at = c == 0 ? 5 : 50;
      run.value[{"good", 0.1}] = c < 2 ? 0.8 + 0.01 * seed : 0.2 + 0.01 * seed;
      run.value[{"same", 0.1}] = 0.5;
      run.value[{"noise", 0.1}] = seed;
      if (c == 0 && seed == 0) run.value[{"late", 0.2}] = 1;
      runs.push_back(run);
    }
  }
  return runs;
}

const WarningRule& rule_of(const EarlyWarning& w, const std::string& measure) {
  for (const WarningRule& r : w.rules) {
    if (r.measure.text() == measure) return r;
  }
  FAIL(measure);
  return w.rules.front();
}

// Every bound counted anew.
std::optional<Threshold> threshold_by_counting(const std::vector<double>& values,
                                               const std::vector<char>& collapsed) {
  const std::set<double> sorted(values.begin(), values.end());
  std::optional<Threshold> best;
  double best_rate = 0, best_gap = 0;
  for (auto low = sorted.begin(), high = std::next(low); high != sorted.end(); ++low, ++high) {
    const double gap = *high - *low;
    for (const bool at_least : {true, false}) {
      const Threshold rule{.at_least = at_least, .bound = *low + 0.5 * gap};
      const double rate = balanced_rate(rule, values, collapsed);
      if (best && (rate < best_rate || (rate == best_rate && gap <= best_gap))) continue;
      best = rule;
      best_rate = rate;
      best_gap = gap;
    }
  }
  return best;
}

}  // namespace

TEST_CASE("a bound lies between the values that it separates") {
  const std::vector<double> values = {0.1, 0.2, 0.6, 0.9};
  const std::vector<char> high = {0, 0, 1, 1}, low = {1, 1, 0, 0}, all = {1, 1, 1, 1};
  const auto rule = best_threshold(values, high);
  REQUIRE(rule->at_least);
  REQUIRE(rule->bound == Approx(0.4));
  REQUIRE(balanced_rate(*rule, values, high) == 1);
  REQUIRE(!best_threshold(values, low)->at_least);
  REQUIRE(!best_threshold(values, all));
  // One of two collapsed runs, and one of two others: 0.5 for every bound that says so.
  REQUIRE(balanced_rate({.at_least = true, .bound = 0.15}, values, std::vector<char>{0, 1, 0, 1}) ==
          Approx(0.75));
}

TEST_CASE("a bound is that of counting the runs at every bound, to the bit") {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    INFO(round);
    // Few steps give ties, steps of one unit in the last place bounds that are a value themselves.
    const int runs = 2 + int(random() % 40), steps = 1 + int(random() % 30);
    const double step = round % 3 == 0 ? std::numeric_limits<double>::epsilon() : 0.1;
    std::vector<double> values;
    std::vector<char> collapsed = {0, 1};
    for (int i = 0; i < runs; ++i) values.push_back(1 + step * double(random() % unsigned(steps)));
    for (int i = 2; i < runs; ++i) collapsed.push_back(char(random() % 2));
    const auto rule = best_threshold(values, collapsed);
    const auto counted = std::set<double>(values.begin(), values.end()).size() > 1
                             ? threshold_by_counting(values, collapsed)
                             : std::nullopt;
    REQUIRE(rule.has_value() == counted.has_value());
    if (!rule) continue;
    REQUIRE(rule->at_least == counted->at_least);
    REQUIRE(rule->bound == counted->bound);
  }
}

TEST_CASE("a bound for many runs takes no time that grows with their square") {
  std::mt19937 random(1);
  std::vector<double> values;
  std::vector<char> collapsed;
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(double(random()));
    collapsed.push_back(char(random() % 2));
  }
  // Counted at every bound, these are 2e10 comparisons.
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(best_threshold(values, collapsed));
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("Wilson's interval") {
  // 9 of 10: (0.9 + 0.19207 +- 1.96 sqrt(0.009 + 0.0096037)) / 1.38415.
  REQUIRE(wilson(9, 10, 10).low == Approx(0.595850).epsilon(1e-5));
  REQUIRE(wilson(9, 10, 10).high == Approx(0.982124).epsilon(1e-5));
  REQUIRE(wilson(18, 20, 10).low == wilson(9, 10, 10).low);
  REQUIRE(wilson(0, 5, 5).low == 0);
  REQUIRE(wilson(0, 0, 0).high == 1);
}

TEST_CASE("seeds of one configuration do not narrow an interval") {
  const auto counted = [](int64_t seeds, bool as_configurations) {
    WarningCounts counts;
    for (const WarningRun& run : planted()) {
      for (int64_t seed = 0; seed < seeds; ++seed) {
        WarningRun one = run;
        if (as_configurations) one.configuration += "/" + std::to_string(seed);
        counts.add(one, run.collapsed());
      }
    }
    return counts;
  };
  const WarningCounts one = counted(1, false), five = counted(5, false), apart = counted(5, true);
  REQUIRE((five.hits == 20 && five.others == 20));
  REQUIRE(hit_rate95(five).low == hit_rate95(one).low);
  REQUIRE(alarm_rate95(five).high == alarm_rate95(one).high);
  REQUIRE(alarm_rate95(five).high == wilson(0, 2, 2).high);
  REQUIRE(alarm_rate95(apart).high < alarm_rate95(five).high);
  REQUIRE(alarms_text(five) == "0 of 20 (0-66%)");
  REQUIRE(hits_text(five) == "20 of 20 (34-100%)");
  REQUIRE(counts_json(five)["other_configurations"] == 2);
}

TEST_CASE("runs that differ in number formats or the contract only are one configuration") {
  Config config;
  config.optimizer.lr = 1e-3;
  const std::string mine = configuration_of(config);
  Config twin = config;
  twin.run.seed += 1;
  twin.run.threads = 3;
  twin.precision.recipe = "bf16";
  twin.optimizer.state = StateFormat::kBf16;
  twin.contract.coefficient = 20;
  REQUIRE(configuration_of(twin) == mine);
  Config other = config;
  other.optimizer.lr = 2e-3;
  REQUIRE(configuration_of(other) != mine);
  other = config;
  other.run.steps += 1;
  REQUIRE(configuration_of(other) != mine);
  // Under equal seconds every seed takes its own steps.
  other.contract.kind = config.contract.kind = ContractKind::kSeconds;
  REQUIRE(configuration_of(other) == configuration_of(config));
}

TEST_CASE("rules are judged on what was left out") {
  const EarlyWarning w = judge_warnings(planted());
  REQUIRE(w.rarely_measured == 1);
  REQUIRE(w.rules.front().measure.text() == "good at 10%");
  const WarningCounts& good = w.rules.front().by_configuration;
  REQUIRE((good.hits == 4 && good.collapsed == 4 && good.alarms == 0 && good.others == 4));
  REQUIRE(w.rules.front().by_run.balanced() == 1);
  // A rule of the noise is no better than chance.
  REQUIRE(rule_of(w, "noise at 10%").by_configuration.balanced() <= 0.5);
  REQUIRE(w.chosen.hits == 4);
  REQUIRE(w.chosen.alarms == 0);
  // At step 10 the runs of configuration 0 are saturated since step 5.
  REQUIRE((w.warned == 4 && w.warned_before == 2));
  const std::string text = early_warning_text(w);
  REQUIRE(text.find("8 runs of 4 configurations in 1 study: 4 collapsed, 4 not") !=
          std::string::npos);
  REQUIRE(text.find("best: good at 10% >= 0.505") != std::string::npos);
}

TEST_CASE("the text says why runs were left out") {
  EarlyWarning w = judge_warnings(planted());
  REQUIRE(early_warning_text(w).find("; 0 left out\nmeasure") != std::string::npos);
  w.left_out = {{.run = "a", .why = "", .copy_of = "b"},
                {.run = "b", .why = "dense"},
                {.run = "lr: 1e-3/c", .why = "dense"},  // a name may have what stands behind it
                {.run = "d", .why = "", .copy_of = "e"},
                {.run = "f", .why = "dense"}};
  REQUIRE(early_warning_text(w).find("; 5 left out\nleft out: 3 dense, 2 a copy of another "
                                     "(--json names them)\n") != std::string::npos);
  const auto json = early_warning_json(w);
  REQUIRE(json["left_out"][0] == "a: a copy of b");
  REQUIRE(json["left_out"][2] == "lr: 1e-3/c: dense");
}

TEST_CASE("a study is left out whole, with its configurations elsewhere") {
  std::vector<WarningRun> runs = planted();
  for (WarningRun& run : runs)
    run.study = "/runs/" + std::string(run.configuration < "2" ? "x" : "y");
  // All collapsed runs are in x: without it the others end alike, and so without y.
  EarlyWarning w = judge_warnings(runs);
  REQUIRE(w.rules.front().by_study.runs() == 0);
  REQUIRE(early_warning_text(w).find("8 runs are not judged by study") != std::string::npos);
  // x has configurations 0 and 2, y has 1 and 3.
  for (WarningRun& run : runs) {
    run.study = run.configuration == "0" || run.configuration == "2" ? "/runs/x" : "/runs/y";
  }
  w = judge_warnings(runs);
  REQUIRE(w.rules.front().by_study.balanced() == 1);
  REQUIRE(w.rules.front().by_study.runs() == 8);
  REQUIRE(w.chosen_by_study.hits == 4);
  REQUIRE(early_warning_text(w).find("in 2 studies: ") != std::string::npos);
  // In x, the value of a run that ends well is that of a collapsed one: y alone sets another bound.
  for (WarningRun& run : runs) {
    if (run.study == "/runs/x") run.value[{"good", 0.1}] += 1;
  }
  w = judge_warnings(runs);
  REQUIRE(rule_of(w, "good at 10%").by_study.alarms == 2);
  // x has one seed of configuration 0 and configuration 2. Without y and its configurations only 2
  // is left, which judges nothing; the three runs of x are judged by 1 and 3.
  runs = planted();
  for (WarningRun& run : runs) {
    run.study = run.name == "0/0" || run.configuration == "2" ? "/runs/x" : "/runs/y";
  }
  w = judge_warnings(runs);
  REQUIRE(w.rules.front().by_study.runs() == 3);
}

TEST_CASE("one study says nothing of another") {
  const EarlyWarning w = judge_warnings(planted());
  REQUIRE(w.rules.front().by_study.runs() == 0);
  REQUIRE(early_warning_text(w).find("one study, ") != std::string::npos);
}

TEST_CASE("a warning is as early as the logged step that it was read at") {
  std::vector<WarningRun> runs = planted();
  REQUIRE(judge_warnings(runs).warned_before == 2);  // at step 10; saturated at 5 and at 50
  for (WarningRun& run : runs) run.read_at[0.1] = 50;
  REQUIRE(judge_warnings(runs).warned_before == 0);
}

TEST_CASE("nothing to judge") {
  std::vector<WarningRun> runs = planted();
  for (WarningRun& run : runs) run.end = RouterState::kHealthy;
  REQUIRE(early_warning_text(judge_warnings(runs)).find("nothing to judge") != std::string::npos);
  runs = planted();
  for (WarningRun& run : runs) run.value.erase({"good", 0.1});
  REQUIRE(early_warning_text(judge_warnings(runs)).find("no measure tells") != std::string::npos);
  REQUIRE(early_warning_text(judge_warnings({})).find("nothing to judge") != std::string::npos);
  for (WarningRun& run : runs) run.value.clear();
  REQUIRE(early_warning_text(judge_warnings(runs)).find("run.log_every") != std::string::npos);
}

}  // namespace assay::test_early_warning
