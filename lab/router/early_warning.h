// Early warning: which measure of the routers, early in a run, tells that they end collapsed? Each
// measure is a rule "at least (at most) a bound at this share of the planned steps"; its bound and
// direction are those that separate the other runs best, and it is judged on the run (or all runs
// of its configuration, or of its study) that was left out. Nothing is chosen on what it is judged
// by.
//
//   hit rate          collapsed runs that it warned of / collapsed runs
//   false alarm rate  other runs that it warned of / other runs
//   balanced          (hit rate + 1 - false alarm rate) / 2: 0.5 for a rule that knows nothing
//
// Intervals are Wilson's at 95% (J. Am. Stat. Assoc. 22, 1927), for counts of what is independent:
// seeds of one configuration are alike, so a rate over runs has the interval of as many
// observations as there are configurations. The rates with configurations left out are the ones to
// trust for runs like these, and those with studies left out for runs of another kind.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/telemetry/reader.h"
#include "lab/runs/router_state.h"
#include "lab/runs/run_record.h"
#include "lab/runs/statistics.h"

namespace assay {

// A measure of the routers over the layers, "max_load_norm, max", at a share of the planned steps.
struct WarningMeasure {
  std::string name;
  double share = 0;
  auto operator<=>(const WarningMeasure&) const = default;
  std::string text() const;  // "max_load_norm, max at 5%"
};

// What a run showed, and how it ended.
struct WarningRun {
  std::string name;
  std::string configuration;  // of configuration_of()
  std::string study;          // the folder that holds the run, such as a matrix's
  RouterState end = RouterState::kHealthy;
  int64_t steps = 0;                            // planned
  std::optional<int64_t> saturated_at;          // the first layer
  std::map<WarningMeasure, double> value = {};  // absent: not measured
  std::map<double, int64_t> read_at = {};       // share -> the logged step of its values

  int64_t step_at(double share) const;  // of the planned ones, rounded up
  bool collapsed() const { return end == RouterState::kCollapsed; }
  // Even over its last window, after a layer was saturated.
  bool recovered() const {
    return end == RouterState::kRecovered || (end == RouterState::kRestless && saturated_at);
  }
};

struct Threshold {
  bool at_least = true;
  double bound = 0;
  bool warns(double value) const { return at_least ? value >= bound : value <= bound; }
};
enum class Direction { kEither, kAtLeast, kAtMost };
// The bound between two neighbouring values, and the direction, with the largest balanced rate;
// ties: the wider gap, then the lower bound. collapsed: 1 or 0 by value. nullopt if it is the same
// for all.
std::optional<Threshold> best_threshold(std::span<const double> values,
                                        std::span<const char> collapsed,
                                        Direction direction = Direction::kEither);
double balanced_rate(const Threshold& rule, std::span<const double> values,
                     std::span<const char> collapsed);

struct WarningCounts {
  int64_t hits = 0, collapsed = 0, alarms = 0, others = 0;  // runs
  std::set<std::string> collapsed_in = {}, others_in = {};  // their configurations
  void add(const WarningRun& run, bool warned);
  int64_t runs() const { return collapsed + others; }
  double balanced() const;
};
// Of the rate count / of, as if so many independent observations had shown it.
Interval wilson(int64_t count, int64_t of, int64_t independent);
Interval hit_rate95(const WarningCounts& counts);
Interval alarm_rate95(const WarningCounts& counts);

struct WarningRule {
  WarningMeasure measure;
  std::optional<Threshold> rule;  // on all runs
  // Judged on what was left out. A run without which all others end alike is judged by nothing:
  // it is in no count.
  WarningCounts by_run, by_configuration, by_study;
};
// With a study go all runs of its configurations, wherever they are.
WarningRule judge_measure(const std::vector<WarningRun>& runs, const WarningMeasure& measure,
                          Direction direction = Direction::kEither);

// A run that is not judged.
struct RunLeftOut {
  std::string run, why;      // "runs/a", "too early"
  std::string copy_of = "";  // instead of `why`: the run that is judged
  std::string text() const;  // "runs/a: too early", "runs/b: a copy of runs/a"
};

struct EarlyWarning {
  std::vector<WarningRun> runs;
  std::vector<RunLeftOut> left_out;
  std::vector<WarningRule> rules;  // best by configuration first
  // The measure too is chosen anew without each configuration (study): what a user of this table
  // gets.
  WarningCounts chosen, chosen_by_study;
  // Over collapsed runs that `rules.front()` warned of before their first layer saturated.
  int64_t warned_before = 0, warned = 0;
  int64_t rarely_measured = 0;  // measures that too few runs have
};

// A measure is judged if so many of the runs have it: rules are compared on the same runs.
inline constexpr double kWarningCoverage = 0.9;
// Measures at these shares of the planned steps, at the first logged step from there on.
inline constexpr double kWarningShares[] = {0.01, 0.02, 0.05, 0.1, 0.2};

// Judges the runs; `runs` are those with a verdict.
EarlyWarning judge_warnings(std::vector<WarningRun> runs);
EarlyWarning early_warning(const std::vector<std::string>& paths);

// Equal for runs that tell nothing beside each other: of one configuration but for the seed, the
// number formats of the products and of the optimizer's state, and the contract.
std::string configuration_of(const Config& config);

// Runs that ended; those without a verdict, dense ones, unfinished ones and copies are left out: a
// run of the same configuration and seed as one before it.
struct EndedRuns {
  std::vector<WarningRun> runs;
  std::vector<RunLeftOut> left_out;
};
// add: is given each run with what it was read from; a text says why the run is left out.
EndedRuns read_ended_runs(
    const std::vector<std::string>& paths,
    const std::function<std::string(WarningRun&, const RunRecord&, const TelemetryReader&)>& add);

// "83 runs of 25 configurations in 5 studies: 58 collapsed, 25 not; 52 left out\n",
// and a line with how many for which reason if any were.
std::string runs_text(const std::vector<WarningRun>& runs, const std::vector<RunLeftOut>& left_out);
std::vector<std::string> lines_of(const std::vector<RunLeftOut>& left_out);
std::set<std::string> studies_of(const std::vector<WarningRun>& runs);
std::string study_name(const std::string& study);  // the last part of the folder
// "54 of 58 (84-97%)".
std::string hits_text(const WarningCounts& counts);
std::string alarms_text(const WarningCounts& counts);
nlohmann::ordered_json counts_json(const WarningCounts& counts);
nlohmann::ordered_json run_json(const WarningRun& run);

std::string early_warning_text(const EarlyWarning& warning);
nlohmann::ordered_json early_warning_json(const EarlyWarning& warning);

}  // namespace assay
