// assay early-warning --rule on planted runs, by hand.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/router/guard_rule.h"
#include "tests/catch.h"

namespace assay::test_guard_rule {

namespace {

// A run of 100 planned steps that logs every tenth one, with these values of two layers' mean.
GuardRun run_of(const std::string& name, const std::string& study, RouterState end,
                const std::vector<double>& means) {
  GuardRun guarded;
  guarded.run = {.name = study + "/" + name,
                 .configuration = name.substr(0, name.find('-')),
                 .study = "/runs/" + study,
                 .end = end,
                 .steps = 100,
                 .saturated_at = {},
                 .value = {}};
  guarded.layers = {1, 3};
  for (size_t i = 0; i < means.size(); ++i) {
    guarded.logged.push_back({.step = 10 * int64_t(i + 1),
                              .values = {{.layer = 1, .value = means[i] - 0.05},
                                         {.layer = 3, .value = means[i] + 0.05}}});
  }
  return guarded;
}

CollapseStopConfig rule_of(double at_most) {
  return {.measure = "entropy_norm",
          .at_most = at_most,
          .layers = CollapseLayers::kMean,
          .logged_steps = 3,
          .from = 0.2};
}

const std::vector<double> kCollapses = {0.9, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5};
const std::vector<double> kSlowly = {0.9, 0.9, 0.9, 0.9, 0.74, 0.74, 0.74, 0.74, 0.74, 0.74};
const std::vector<double> kRecovers = {0.3, 0.4, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
// Low at the end only: two steps before the last one, which no guard stops.
const std::vector<double> kEndsLow = {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5};

std::vector<GuardRun> planted() {
  return {run_of("a-1", "first", RouterState::kCollapsed, kCollapses),
          run_of("a-2", "first", RouterState::kCollapsed, kSlowly),
          run_of("b-1", "first", RouterState::kRecovered, kRecovers),
          run_of("c-1", "second", RouterState::kCollapsed, kCollapses),
          run_of("d-1", "second", RouterState::kUneven, kEndsLow)};
}

}  // namespace

TEST_CASE("the guard's rule is replayed over a run's logged steps") {
  const auto at = [](const CollapseStopConfig& rule, const std::vector<double>& means) {
    return stop_of(rule, run_of("x", "s", RouterState::kCollapsed, means)).value_or(0);
  };
  REQUIRE(at(rule_of(0.75), kCollapses) == 40);  // steps 20, 30, 40
  REQUIRE(at(rule_of(0.65), kCollapses) == 50);
  REQUIRE(at(rule_of(0.4), kCollapses) == 0);
  REQUIRE(at(rule_of(0.75), kSlowly) == 70);
  REQUIRE(at(rule_of(0.85), kRecovers) == 0);  // step 10 does not count: 20 and 30 are two
  REQUIRE(at(rule_of(0.75), kEndsLow) == 0);
  CollapseStopConfig from_start = rule_of(0.85);
  from_start.from.reset();
  REQUIRE(at(from_start, kRecovers) == 30);
  CollapseStopConfig any = rule_of(0.75);
  any.layers = CollapseLayers::kAny;
  REQUIRE(at(any, std::vector<double>(10, 0.79)) == 40);
}

TEST_CASE("the bound at which a rule only just stops a run") {
  const auto bound = [](const CollapseStopConfig& rule, const std::vector<double>& means) {
    return critical_bound(rule, run_of("x", "s", RouterState::kCollapsed, means));
  };
  REQUIRE(*bound(rule_of(0.1), kCollapses) == Approx(0.5));
  REQUIRE(*bound(rule_of(0.1), kSlowly) == Approx(0.74));
  REQUIRE(*bound(rule_of(0.1), kRecovers) == Approx(0.9));
  CollapseStopConfig least = rule_of(0.1);
  least.at_most.reset();
  least.at_least = 0.2;
  REQUIRE(*bound(least, kSlowly) == Approx(0.9));
  REQUIRE(*bound(least, kCollapses) == Approx(0.5));
  REQUIRE(!bound(rule_of(0.1), {0.5, 0.5, 0.5}));  // step 10 does not count
}

TEST_CASE("a rule is judged over the runs, by study, and with a bound that is chosen") {
  const GuardJudgement j = judge_guard(rule_of(0.65), planted());
  REQUIRE((j.counts.hits == 2 && j.counts.collapsed == 3));
  REQUIRE((j.counts.alarms == 0 && j.counts.others == 2));
  REQUIRE((j.recovered == 1 && j.recovered_stopped == 0));
  std::vector<GuardRun> turns = planted();
  turns[2].run.end = RouterState::kRestless;
  REQUIRE(judge_guard(rule_of(0.65), turns).recovered == 0);
  turns[2].run.saturated_at = 30;
  REQUIRE(judge_guard(rule_of(0.65), turns).recovered == 1);
  REQUIRE(j.saved == Approx(0.5));
  REQUIRE(j.runs[0].stops_at == 50);
  REQUIRE(!j.runs[1].stops_at);
  REQUIRE((j.by_study.at("/runs/first").hits == 1 && j.by_study.at("/runs/first").collapsed == 2));
  REQUIRE(j.by_study.at("/runs/second").hits == 1);
  // Critical bounds 0.5, 0.74, 0.5 of collapsed runs and 0.9 twice.
  REQUIRE(j.chosen.rule->bound == Approx(0.82));
  REQUIRE(!j.chosen.rule->at_least);
  REQUIRE((j.chosen.by_configuration.hits == 2 && j.chosen.by_configuration.alarms == 0));
  REQUIRE(
      (j.chosen.by_study.hits == 2 && j.chosen.by_study.alarms == 0));  // 0.74 > (0.5 + 0.9) / 2
  const std::string text = guard_rule_text(j);
  for (const char* part :
       {"rule: entropy_norm <= 0.65 in the mean over the layers for 3 logged steps from 20% of the",
        "5 runs of 4 configurations in 2 studies: 3 collapsed, 2 not; 0 left out",
        "the guard stops 2 of 3 collapsed runs, where it would have saved 50% of their steps, and "
        "0 "
        "of 2 others; 0 of 1 recovered",
        "the bound that separates these runs best: at_most 0.82\n",
        "chosen without each study: hits 2 of 3"}) {
    INFO(text);
    REQUIRE(text.find(part) != std::string::npos);
  }
  const auto json = guard_rule_json(j);
  REQUIRE(json["counts"]["hits"] == 2);
  REQUIRE(json["runs"][0]["stops_at"] == 50);
  REQUIRE(json["runs"][1]["stops_at"].is_null());
  REQUIRE(json["rule"]["from"] == 0.2);
}

TEST_CASE("the guard at the chosen bound gives the counts of its choice") {
  const GuardJudgement j = judge_guard(rule_of(0.65), planted());
  const GuardJudgement again = judge_guard(rule_of(j.chosen.rule->bound), planted());
  REQUIRE((again.counts.hits == 3 && again.counts.alarms == 0));
  // Just beyond the bound of a run it stops that one too.
  REQUIRE(judge_guard(rule_of(0.8999), planted()).counts.alarms == 0);
  REQUIRE(judge_guard(rule_of(0.9001), planted()).counts.alarms == 2);
}

TEST_CASE("a bound is chosen in the direction of the rule") {
  std::vector<GuardRun> turned = planted();  // the low ones are the runs that end well
  for (GuardRun& guarded : turned) {
    guarded.run.end = guarded.run.collapsed() ? RouterState::kUneven : RouterState::kCollapsed;
  }
  REQUIRE(!judge_guard(rule_of(0.65), turned).chosen.rule->at_least);
}

TEST_CASE("runs without whose configuration the others end alike are judged by nothing") {
  std::vector<GuardRun> runs = planted();
  runs.pop_back();  // b is the only one that does not collapse
  const GuardJudgement j = judge_guard(rule_of(0.65), runs);
  REQUIRE((j.chosen.by_configuration.collapsed == 3 && j.chosen.by_configuration.others == 0));
  const std::string text = guard_rule_text(j);
  INFO(text);
  REQUIRE(text.find("chosen without each configuration: hits 2 of 3") != std::string::npos);
  REQUIRE(text.find("; 1 runs are judged by nothing, as without them all others end alike\n") !=
          std::string::npos);
}

TEST_CASE("one study, one kind of end, and no runs") {
  std::vector<GuardRun> one = planted();
  for (GuardRun& guarded : one) guarded.run.study = "/runs/only";
  REQUIRE(guard_rule_text(judge_guard(rule_of(0.65), one)).find("one study, only: nothing") !=
          std::string::npos);
  for (GuardRun& guarded : one) guarded.run.end = RouterState::kCollapsed;
  REQUIRE(guard_rule_text(judge_guard(rule_of(0.65), one)).find("no bound to choose") !=
          std::string::npos);
  REQUIRE(guard_rule_text(judge_guard(rule_of(0.65), {})).find("nothing to judge") !=
          std::string::npos);
}

TEST_CASE("a rule is read as in a configuration") {
  const CollapseStopConfig rule = read_guard_rule("{measure: gini, at_least: 0.6, from: 0.5}");
  REQUIRE((rule.measure == "gini" && *rule.at_least == 0.6 && *rule.from == 0.5));
  REQUIRE(read_guard_rule("auto").measure == "entropy_norm");
  for (const char* wrong : {"{measure: cv, at_least: 0.6}", "{at_least: 0.6, from: 1}", "aut",
                            "null", "{measure: gini}", "{at_least: 0.6"}) {
    INFO(wrong);
    REQUIRE_THROWS_AS(read_guard_rule(wrong), UserError);
  }
}

}  // namespace assay::test_guard_rule
