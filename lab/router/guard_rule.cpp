#include "lab/router/guard_rule.h"

#include <algorithm>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "engine/telemetry/collapse_guard.h"

namespace assay {
namespace {

// A value that no bound reaches.
double never(const CollapseStopConfig& rule) {
  return rule.at_least ? -1 : 2;
}

// Sets the bound, whichever of the two the rule has.
void set_bound(CollapseStopConfig& rule, double bound) {
  (rule.at_least ? rule.at_least : rule.at_most) = bound;
}

bool holds_at(CollapseStopConfig rule, double bound, const GuardRun& run) {
  set_bound(rule, bound);
  return stop_of(rule, run).has_value();
}

// "" or why the run cannot be judged.
std::string read_logged(GuardRun& guarded, const std::string& measure,
                        const TelemetryReader& telemetry) {
  const std::vector<StepValue> logged = telemetry.scalar("train_loss_nats");
  if (logged.empty()) return "logged nothing";
  const char* columns[] = {measure.c_str()};
  std::map<int64_t, std::vector<LayerValue>> by_step;
  for (const auto& [layer, curves] : telemetry.router_curves(columns, logged.back().step)) {
    guarded.layers.push_back(layer);
    for (const StepValue& v : curves.at(measure)) {
      by_step[v.step].push_back({.layer = layer, .value = v.value});
    }
  }
  if (by_step.empty()) return "has no " + measure;
  for (const StepValue& at : logged) {
    guarded.logged.push_back({.step = at.step, .values = by_step[at.step]});
  }
  return "";
}

WarningRule choose_bound(const CollapseStopConfig& rule, const std::vector<GuardRun>& runs) {
  const WarningMeasure measure{.name = rule.measure, .share = rule.from.value_or(0)};
  std::vector<WarningRun> judged;
  for (const GuardRun& guarded : runs) {
    judged.push_back(guarded.run);
    judged.back().value = {{measure, critical_bound(rule, guarded).value_or(never(rule))}};
  }
  WarningRule chosen =
      judge_measure(judged, measure, rule.at_least ? Direction::kAtLeast : Direction::kAtMost);
  if (chosen.rule) chosen.rule->bound = std::clamp(chosen.rule->bound, 0.0, 1.0);
  return chosen;
}

}  // namespace

double GuardRun::saved() const {
  return stops_at ? double(run.steps - *stops_at) / double(run.steps) : 0;
}

std::optional<int64_t> stop_of(const CollapseStopConfig& rule, const GuardRun& run) {
  CollapseGuard guard(rule, run.layers, run.run.steps);
  for (const LoggedStep& logged : run.logged) {
    if (logged.step >= run.run.steps) break;  // after its last step a run is complete
    guard.observe(logged.step, logged.values);
    if (guard.holds()) return logged.step;
  }
  return std::nullopt;
}

std::optional<double> critical_bound(const CollapseStopConfig& rule, const GuardRun& run) {
  constexpr int kHalvings = 40;
  // `inside` always stops the run, `outside` never does.
  double inside = rule.at_least ? 0 : 1, outside = rule.at_least ? 1 : 0;
  if (!holds_at(rule, inside, run)) return std::nullopt;
  if (holds_at(rule, outside, run)) return outside;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (inside + outside) / 2;
    (holds_at(rule, middle, run) ? inside : outside) = middle;
  }
  return inside;
}

GuardJudgement judge_guard(const CollapseStopConfig& rule, std::vector<GuardRun> runs) {
  GuardJudgement judgement;
  judgement.rule = rule;
  int64_t steps_of_hits = 0, saved = 0;
  for (GuardRun& guarded : runs) {
    const WarningRun& run = guarded.run;
    guarded.stops_at = stop_of(rule, guarded);
    const bool stopped = guarded.stops_at.has_value();
    judgement.counts.add(run, stopped);
    judgement.by_study[run.study].add(run, stopped);
    if (run.recovered()) {
      judgement.recovered += 1;
      judgement.recovered_stopped += stopped ? 1 : 0;
    }
    if (stopped && run.collapsed()) {
      steps_of_hits += run.steps;
      saved += run.steps - *guarded.stops_at;
    }
  }
  if (steps_of_hits > 0) judgement.saved = double(saved) / double(steps_of_hits);
  judgement.chosen = choose_bound(rule, runs);
  judgement.runs = std::move(runs);
  return judgement;
}

GuardJudgement guard_rule(const CollapseStopConfig& rule, const std::vector<std::string>& paths) {
  std::vector<GuardRun> runs;
  EndedRuns ended = read_ended_runs(
      paths, [&](WarningRun& run, const RunRecord&, const TelemetryReader& telemetry) {
        GuardRun guarded;
        std::string why = read_logged(guarded, rule.measure, telemetry);
        if (!why.empty()) return why;
        guarded.run = run;
        runs.push_back(std::move(guarded));
        return why;
      });
  GuardJudgement judgement = judge_guard(rule, std::move(runs));
  judgement.left_out = std::move(ended.left_out);
  return judgement;
}

CollapseStopConfig read_guard_rule(const std::string& text) {
  const Config config =
      parse_config_text("telemetry: {collapse_stop: " + text + "}", "--rule", ".");
  const auto& rule = config.telemetry.collapse_stop;
  if (!rule) {
    throw UserError(
        "--rule " + text + " is no rule",
        "e.g. --rule '{measure: entropy_norm, at_most: 0.83, layers: mean, for: 10}', or "
        "--rule auto");
  }
  return *rule;
}

}  // namespace assay
