#include "lab/router/early_warning.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "base/check.h"
#include "lab/matrix/matrix.h"
#include "lab/router/analysis.h"

namespace assay {

namespace {

double balanced(double hit_rate, double alarm_rate) {
  return 0.5 * (hit_rate + 1 - alarm_rate);
}

struct Seen {
  std::vector<double> values;
  std::vector<char> collapsed;
};

bool is_collapsed(const WarningRun& run) {
  return run.end == RouterState::kCollapsed;
}

Seen seen(const std::vector<WarningRun>& runs, const WarningMeasure& measure,
          const std::function<bool(const WarningRun&)>& wanted) {
  Seen s;
  for (const WarningRun& run : runs) {
    const auto found = run.value.find(measure);
    if (found == run.value.end() || !wanted(run)) continue;
    s.values.push_back(found->second);
    s.collapsed.push_back(is_collapsed(run) ? 1 : 0);
  }
  return s;
}

void count(WarningCounts& counts, const WarningRun& run, const Threshold& rule, double value) {
  const bool warned = rule.warns(value);
  if (is_collapsed(run)) {
    counts.collapsed += 1;
    counts.hits += warned ? 1 : 0;
  } else {
    counts.others += 1;
    counts.alarms += warned ? 1 : 0;
  }
}

std::optional<Threshold> threshold_without(const std::vector<WarningRun>& runs,
                                           const WarningMeasure& measure,
                                           const std::function<bool(const WarningRun&)>& without) {
  const Seen s = seen(runs, measure, [&](const WarningRun& r) { return !without(r); });
  return best_threshold(s.values, s.collapsed);
}

WarningRule judge_measure(const std::vector<WarningRun>& runs, const WarningMeasure& measure) {
  WarningRule rule{.measure = measure, .rule = {}, .by_run = {}, .by_configuration = {}};
  rule.rule = threshold_without(runs, measure, [](const WarningRun&) { return false; });
  std::map<std::string, std::optional<Threshold>> of_configuration;
  for (const WarningRun& run : runs) {
    const auto found = run.value.find(measure);
    if (found == run.value.end()) continue;
    const auto alone =
        threshold_without(runs, measure, [&](const WarningRun& r) { return r.name == run.name; });
    if (alone) count(rule.by_run, run, *alone, found->second);
    const auto [at, is_new] = of_configuration.try_emplace(run.configuration);
    if (is_new) {
      at->second = threshold_without(
          runs, measure, [&](const WarningRun& r) { return r.configuration == run.configuration; });
    }
    if (at->second) count(rule.by_configuration, run, *at->second, found->second);
  }
  return rule;
}

// The measure and its threshold that separate best where `without` does not hold.
std::pair<WarningMeasure, std::optional<Threshold>> best_rule(
    const std::vector<WarningRun>& runs, const std::set<WarningMeasure>& measures,
    const std::function<bool(const WarningRun&)>& without) {
  std::pair<WarningMeasure, std::optional<Threshold>> best;
  double best_rate = -1;
  for (const WarningMeasure& measure : measures) {
    const Seen s = seen(runs, measure, [&](const WarningRun& r) { return !without(r); });
    const auto rule = best_threshold(s.values, s.collapsed);
    if (!rule) continue;
    const double rate = balanced_rate(*rule, s.values, s.collapsed);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = {measure, rule};
  }
  return best;
}

WarningCounts judge_choice(const std::vector<WarningRun>& runs,
                           const std::set<WarningMeasure>& measures) {
  WarningCounts counts;
  std::map<std::string, std::pair<WarningMeasure, std::optional<Threshold>>> rules;
  for (const WarningRun& run : runs) {
    const auto [at, is_new] = rules.try_emplace(run.configuration);
    if (is_new) {
      at->second = best_rule(runs, measures, [&](const WarningRun& r) {
        return r.configuration == run.configuration;
      });
    }
    const auto& [measure, rule] = at->second;
    const auto found = run.value.find(measure);
    if (rule && found != run.value.end()) count(counts, run, *rule, found->second);
  }
  return counts;
}

}  // namespace

double balanced_rate(const Threshold& rule, std::span<const double> values,
                     std::span<const char> collapsed) {
  double hits = 0, positives = 0, alarms = 0, others = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool warned = rule.warns(values[i]);
    (collapsed[i] ? positives : others) += 1;
    if (warned) (collapsed[i] ? hits : alarms) += 1;
  }
  if (positives == 0 || others == 0) return 0.5;
  return balanced(hits / positives, alarms / others);
}

std::optional<Threshold> best_threshold(std::span<const double> values,
                                        std::span<const char> collapsed) {
  const auto positives = std::count(collapsed.begin(), collapsed.end(), 1);
  if (positives == 0 || positives == std::ssize(collapsed)) return std::nullopt;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::optional<Threshold> best;
  double best_rate = 0, best_gap = 0;
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    const double gap = sorted[i + 1] - sorted[i];
    for (const bool at_least : {true, false}) {
      const Threshold rule{.at_least = at_least, .bound = sorted[i] + 0.5 * gap};
      const double rate = balanced_rate(rule, values, collapsed);
      if (best && (rate < best_rate || (rate == best_rate && gap <= best_gap))) continue;
      best = rule;
      best_rate = rate;
      best_gap = gap;
    }
  }
  return best;
}

std::string WarningMeasure::text() const {
  return name + strprintf(" at %g%%", 100 * share);
}

int64_t WarningRun::step_at(double share) const {
  return int64_t(std::ceil(share * double(steps)));
}

double WarningCounts::balanced() const {
  if (collapsed == 0 || others == 0) return 0.5;
  return assay::balanced(double(hits) / double(collapsed), double(alarms) / double(others));
}

Interval wilson(int64_t count, int64_t of) {
  constexpr double kZ = 1.959963984540054;
  if (of == 0) return {.low = 0, .high = 1};
  const double n = double(of), p = double(count) / n, z2 = kZ * kZ;
  const double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {.low = std::max(0.0, middle - half), .high = std::min(1.0, middle + half)};
}

EarlyWarning judge_warnings(std::vector<WarningRun> runs) {
  EarlyWarning warning;
  warning.runs = std::move(runs);
  std::map<WarningMeasure, int64_t> known;
  for (const WarningRun& run : warning.runs) {
    for (const auto& [measure, value] : run.value) known[measure] += 1;
  }
  std::set<WarningMeasure> measures;
  for (const auto& [measure, runs_with_it] : known) {
    if (double(runs_with_it) >= kWarningCoverage * double(warning.runs.size())) {
      measures.insert(measure);
    } else {
      warning.rarely_measured += 1;
    }
  }
  for (const WarningMeasure& measure : measures) {
    WarningRule rule = judge_measure(warning.runs, measure);
    if (rule.rule) warning.rules.push_back(std::move(rule));
  }
  std::stable_sort(warning.rules.begin(), warning.rules.end(),
                   [](const WarningRule& a, const WarningRule& b) {
                     return a.by_configuration.balanced() > b.by_configuration.balanced();
                   });
  if (warning.rules.empty()) return warning;
  warning.chosen = judge_choice(warning.runs, measures);
  const WarningRule& best = warning.rules.front();
  for (const WarningRun& run : warning.runs) {
    const auto found = run.value.find(best.measure);
    if (!is_collapsed(run) || found == run.value.end() || !best.rule->warns(found->second))
      continue;
    warning.warned += 1;
    const bool before = !run.saturated_at || run.step_at(best.measure.share) < *run.saturated_at;
    warning.warned_before += before ? 1 : 0;
  }
  return warning;
}

namespace {

// Normalised, so that runs of other E and K can be compared.
constexpr const char* kMeasures[] = {"max_load_norm", "cv_norm",    "entropy_norm",
                                     "active_norm",   "gini",       "margin",
                                     "lead",          "bias_range", "gate_entropy_norm"};

// Whether the smallest of the layers' values is taken beside their mean, or the largest.
bool low_is_uneven(const std::string& measure) {
  return measure == "entropy_norm" || measure == "active_norm" || measure == "margin" ||
         measure == "gate_entropy_norm";
}

void add_values(WarningRun& run, const RouterHistory& history, double share) {
  const int64_t from = run.step_at(share);
  const auto step = std::lower_bound(history.steps.begin(), history.steps.end(), from);
  if (step == history.steps.end() || double(*step) > 1.5 * std::max<double>(double(from), 2))
    return;
  for (const char* measure : kMeasures) {
    std::vector<double> values;
    for (const LayerHistory& layer : history.layers) {
      if (const auto value = layer.at(measure, *step)) values.push_back(*value);
    }
    if (values.empty()) continue;
    double sum = 0;
    for (const double v : values) sum += v;
    const std::string name = measure;
    if (low_is_uneven(measure)) {
      run.value[{name + ", min", share}] = *std::min_element(values.begin(), values.end());
    } else {
      run.value[{name + ", max", share}] = *std::max_element(values.begin(), values.end());
    }
    run.value[{name + ", mean", share}] = sum / double(values.size());
  }
}

}  // namespace

EarlyWarning early_warning(const std::vector<std::string>& paths) {
  std::vector<WarningRun> runs;
  std::vector<std::string> left_out;
  std::set<std::string> seen_paths;  // a run counts once, however it is named
  for (const std::string& path : paths) {
    if (!seen_paths.insert(std::filesystem::weakly_canonical(path).string()).second) continue;
    const auto leave = [&](const std::string& why) { left_out.push_back(path + ": " + why); };
    std::optional<RunRecord> read;
    try {
      read = read_run(path);
    } catch (const UserError& error) {
      leave(error.what());
      continue;
    }
    const RunRecord& record = *read;
    if (!record.config.model.moe) {
      leave("dense");
      continue;
    }
    const RouterAnalysis analysis = analyse_router(record, {});
    // Its verdict would be that of a rule like those which are judged here.
    const bool stopped = analysis.end == "collapse_stop";
    if (!record.finished() || analysis.verdict.state == RouterState::kTooEarly) {
      leave(stopped             ? "stopped by its guard"
            : record.finished() ? "too early for a verdict"
                                : "not finished");
      continue;
    }
    Config without_seed = record.config;
    without_seed.run.seed = 0;
    WarningRun run{.name = path,
                   .configuration = config_sha256(without_seed),
                   .end = analysis.verdict.state,
                   .steps = record.config.run.steps,
                   .saturated_at = {},
                   .value = {}};
    for (const RouterLayer& layer : analysis.layers) {
      if (layer.saturated_at && (!run.saturated_at || *layer.saturated_at < *run.saturated_at)) {
        run.saturated_at = layer.saturated_at;
      }
    }
    const TelemetryReader telemetry(record.path + "/telemetry.db");
    const RouterHistory history = read_router_history(telemetry, record.config.model.moe->top_k,
                                                      record.config.telemetry.window);
    for (const double share : kWarningShares) add_values(run, history, share);
    runs.push_back(std::move(run));
  }
  EarlyWarning warning = judge_warnings(std::move(runs));
  warning.left_out = std::move(left_out);
  return warning;
}

}  // namespace assay
