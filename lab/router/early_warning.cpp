#include "lab/router/early_warning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace assay {

namespace {

double balanced(double hit_rate, double alarm_rate) {
  return 0.5 * (hit_rate + 1 - alarm_rate);
}

struct Seen {
  std::vector<double> values;
  std::vector<char> collapsed;
};

using Values = std::vector<std::optional<double>>;  // run by run

Values values_of(const std::vector<WarningRun>& runs, const WarningMeasure& measure) {
  Values values;
  for (const WarningRun& run : runs) {
    const auto found = run.value.find(measure);
    values.push_back(found == run.value.end() ? std::nullopt : std::optional(found->second));
  }
  return values;
}

Seen seen(const std::vector<WarningRun>& runs, const Values& values,
          const std::vector<char>& left_out) {
  Seen s;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!values[i] || left_out[i]) continue;
    s.values.push_back(*values[i]);
    s.collapsed.push_back(runs[i].collapsed() ? 1 : 0);
  }
  return s;
}

// The values in order, each once, and how many collapsed runs and others have a smaller one; the
// last of these counts are of all runs.
struct Ranked {
  std::vector<double> values;                          // (n)
  std::vector<int64_t> collapsed = {0}, others = {0};  // (n + 1)
};

Ranked ranked(std::span<const double> values, std::span<const char> collapsed) {
  std::vector<std::pair<double, char>> sorted;
  for (size_t i = 0; i < values.size(); ++i) sorted.emplace_back(values[i], collapsed[i]);
  std::sort(sorted.begin(), sorted.end());
  Ranked r;
  for (const auto& [value, is_collapsed] : sorted) {
    if (r.values.empty() || value != r.values.back()) {
      r.values.push_back(value);
      r.collapsed.push_back(r.collapsed.back());
      r.others.push_back(r.others.back());
    }
    (is_collapsed ? r.collapsed : r.others).back() += 1;
  }
  return r;
}

double balanced_rate(const Threshold& rule, const Ranked& r) {
  const auto at = rule.at_least ? std::lower_bound(r.values.begin(), r.values.end(), rule.bound)
                                : std::upper_bound(r.values.begin(), r.values.end(), rule.bound);
  const auto below = size_t(at - r.values.begin());
  const auto warned = [&](const std::vector<int64_t>& counts) {
    return double(rule.at_least ? counts.back() - counts[below] : counts[below]);
  };
  return balanced(warned(r.collapsed) / double(r.collapsed.back()),
                  warned(r.others) / double(r.others.back()));
}

std::vector<char> none_left_out(const std::vector<WarningRun>& runs) {
  return std::vector<char>(runs.size(), 0);
}

enum class LeftOut { kRun, kConfiguration, kStudy };

// What a run is judged together with.
const std::string& group_of(const WarningRun& run, LeftOut by) {
  if (by == LeftOut::kRun) return run.name;
  return by == LeftOut::kStudy ? run.study : run.configuration;
}

std::vector<char> left_out_with(const std::vector<WarningRun>& runs, const WarningRun& judged,
                                LeftOut by) {
  std::set<std::string> configurations;
  for (const WarningRun& run : runs) {
    if (by == LeftOut::kStudy && run.study == judged.study) {
      configurations.insert(run.configuration);
    }
  }
  std::vector<char> out;
  for (const WarningRun& run : runs) {
    const bool same = group_of(run, by) == group_of(judged, by);
    out.push_back(same || configurations.contains(run.configuration) ? 1 : 0);
  }
  return out;
}

WarningCounts judge_left_out(const std::vector<WarningRun>& runs, const WarningMeasure& measure,
                             LeftOut by, Direction direction) {
  WarningCounts counts;
  std::map<std::string, std::optional<Threshold>> rules;
  const Values values = values_of(runs, measure);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!values[i]) continue;
    const auto [at, is_new] = rules.try_emplace(group_of(runs[i], by));
    if (is_new) {
      const Seen s = seen(runs, values, left_out_with(runs, runs[i], by));
      at->second = best_threshold(s.values, s.collapsed, direction);
    }
    if (at->second) counts.add(runs[i], at->second->warns(*values[i]));
  }
  return counts;
}

// The measure and its threshold that separate the runs best that are not left out.
std::pair<WarningMeasure, std::optional<Threshold>> best_rule(
    const std::vector<WarningRun>& runs, const std::set<WarningMeasure>& measures,
    const std::vector<char>& left_out) {
  std::pair<WarningMeasure, std::optional<Threshold>> best;
  double best_rate = -1;
  for (const WarningMeasure& measure : measures) {
    const Seen s = seen(runs, values_of(runs, measure), left_out);
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
                           const std::set<WarningMeasure>& measures, LeftOut by) {
  WarningCounts counts;
  std::map<std::string, std::pair<WarningMeasure, std::optional<Threshold>>> rules;
  for (const WarningRun& run : runs) {
    const auto [at, is_new] = rules.try_emplace(group_of(run, by));
    if (is_new) at->second = best_rule(runs, measures, left_out_with(runs, run, by));
    const auto& [measure, rule] = at->second;
    const auto found = run.value.find(measure);
    if (rule && found != run.value.end()) counts.add(run, rule->warns(found->second));
  }
  return counts;
}

}  // namespace

WarningRule judge_measure(const std::vector<WarningRun>& runs, const WarningMeasure& measure,
                          Direction direction) {
  const Seen all = seen(runs, values_of(runs, measure), none_left_out(runs));
  return {.measure = measure,
          .rule = best_threshold(all.values, all.collapsed, direction),
          .by_run = judge_left_out(runs, measure, LeftOut::kRun, direction),
          .by_configuration = judge_left_out(runs, measure, LeftOut::kConfiguration, direction),
          .by_study = judge_left_out(runs, measure, LeftOut::kStudy, direction)};
}

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
                                        std::span<const char> collapsed, Direction direction) {
  const Ranked r = ranked(values, collapsed);
  if (r.collapsed.back() == 0 || r.others.back() == 0) return std::nullopt;
  const std::vector<double>& sorted = r.values;
  std::optional<Threshold> best;
  double best_rate = 0, best_gap = 0;
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    const double gap = sorted[i + 1] - sorted[i];
    for (const bool at_least : {true, false}) {
      if (direction == (at_least ? Direction::kAtMost : Direction::kAtLeast)) continue;
      const Threshold rule{.at_least = at_least, .bound = sorted[i] + 0.5 * gap};
      const double rate = balanced_rate(rule, r);
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

void WarningCounts::add(const WarningRun& run, bool warned) {
  (run.collapsed() ? collapsed : others) += 1;
  (run.collapsed() ? collapsed_in : others_in).insert(run.configuration);
  if (warned) (run.collapsed() ? hits : alarms) += 1;
}

double WarningCounts::balanced() const {
  if (collapsed == 0 || others == 0) return 0.5;
  return assay::balanced(double(hits) / double(collapsed), double(alarms) / double(others));
}

Interval wilson(int64_t count, int64_t of, int64_t independent) {
  constexpr double kZ = 1.959963984540054;
  if (of == 0) return {.low = 0, .high = 1};
  const double n = double(independent), p = double(count) / double(of), z2 = kZ * kZ;
  const double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {.low = std::max(0.0, middle - half), .high = std::min(1.0, middle + half)};
}

Interval hit_rate95(const WarningCounts& counts) {
  return wilson(counts.hits, counts.collapsed, int64_t(counts.collapsed_in.size()));
}

Interval alarm_rate95(const WarningCounts& counts) {
  return wilson(counts.alarms, counts.others, int64_t(counts.others_in.size()));
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
  warning.chosen = judge_choice(warning.runs, measures, LeftOut::kConfiguration);
  warning.chosen_by_study = judge_choice(warning.runs, measures, LeftOut::kStudy);
  const WarningRule& best = warning.rules.front();
  for (const WarningRun& run : warning.runs) {
    const auto found = run.value.find(best.measure);
    if (!run.collapsed() || found == run.value.end() || !best.rule->warns(found->second)) continue;
    warning.warned += 1;
    const auto read = run.read_at.find(best.measure.share);
    const int64_t at = read == run.read_at.end() ? run.step_at(best.measure.share) : read->second;
    const bool before = !run.saturated_at || at < *run.saturated_at;
    warning.warned_before += before ? 1 : 0;
  }
  return warning;
}

}  // namespace assay
