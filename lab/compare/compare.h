// Compares runs: what they have in common, where they differ, and what may be concluded from that.
//
//   const std::vector<RunRecord> runs = read_runs(paths);
//   const Comparison c = compare(runs, {.target_loss = 3.28});
//   std::fputs(comparison_text(c).c_str(), stdout);          // lab/compare/compare_report.h
//
// Curves are read at equal shares of each run's own contract, never interpolated. Differences are
// taken seed by seed. A ranking names the contract under which it holds; without a ranking, the
// comparison gives the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/runs/confounds.h"
#include "lab/runs/core_answers.h"
#include "lab/runs/seed_groups.h"
#include "lab/runs/time_to_target.h"

namespace assay {

enum class Incomparable {
  kRefuse,
  kMark,  // compare, and list the differences above the tables
};

struct CompareOptions {
  std::optional<std::string> contract = {};  // what is held fixed, instead of the runs' contracts
  std::optional<double> target_loss = {};    // instead of the runs' run.target_loss
  std::vector<double> fractions = {0.02, 0.05, 0.1, 0.2, 0.5, 1.0};
  Incomparable incomparable = Incomparable::kRefuse;
  RunText model_name = {};  // of the model of a run, instead of the common part of the runs' names
};

// Validation loss at a share of the contract. Both steps are 0 where the runs are of contracts with
// other steps, as seeds under `seconds` are: each is then read at its own.
struct CurvePoint {
  double fraction = 0;
  int64_t step = 0;         // at the share
  int64_t measured_at = 0;  // the evaluation used: at `step`, or the nearest within a tenth of it
  std::optional<Summary> loss = {};  // absent if no run has a finite one there
};

// Over the runs that reached the target.
struct TargetSummary {
  int64_t reached = 0, of = 0;  // runs
  std::optional<Summary> steps = {}, tokens = {}, seconds = {}, flops = {};
};

struct HealthSummary {
  bool sparse = false;
  int64_t logged = 0, collapsed = 0, uneven = 0, restless = 0;  // runs
  RouterState state = RouterState::kHealthy;                    // the worst of the runs
  RouterHealth worst = {};  // of the run with the largest max_load
  // Of the runs in `state`, if that is uneven or restless: the one with the largest max_load, of
  // restless ones with the largest swing.
  std::optional<RouterHealth> worst_in_state = {};
  // "dense", "not logged", "healthy: ...", "collapsed in 1 of 3 runs: ...", "uneven in 1 of 3 runs:
  // ...", "restless in 1 of 3 runs: ..."
  std::string text() const;
  // "collapsed", "collapsed in 1 of 3 runs"; "" if none did.
  std::string collapse_text() const;
};

// The last CORE score of each run that has one (lab/runs/recorded_core.h).
struct CapabilitySummary {
  // Distinct names of the scores. More than one: different tasks or rows, so no mean is taken.
  std::vector<std::string> names = {};
  std::optional<Summary> value = {};
  int64_t scored = 0;        // runs
  std::string text() const;  // "not evaluated", "core 0.0231 sd 0.0040, n 3", "2 different scores"
};

struct ModelRow {
  SeedGroup group;
  std::string contract;
  std::optional<Summary> final_loss = {}, best_loss = {}, bits_per_byte = {}, seconds = {};
  // Why there are no seconds: its runs are of two machines (lab/runs/machine.h); "" if of one.
  std::string other_machine = {};
  std::vector<CurvePoint> curve = {};
  std::optional<TargetSummary> target = {};
  CapabilitySummary capability = {};
  HealthSummary health = {};
  std::vector<std::string> unfinished = {};  // names of runs
  // This - first; absent in the first row.
  std::optional<PairedDifference> loss_against_first = {};
  CoreRowComparison core_against_first = {};  // over the rows of CORE
};

// Models from best to worst by one measure.
struct Ranking {
  struct Place {
    int64_t place = 1;  // shared by models of equal means: 1, 1, 3
    std::string model;
    Summary value;
    std::string note;  // certainty that the next one is worse; a collapse
    std::optional<PairedDifference> to_next = {};  // this - next; absent in the last place
  };
  std::string by;  // "validation loss at the end", "seconds to 3.28"
  std::string unit;
  std::vector<Place> places;
  std::vector<std::string> not_reached = {};
};

struct Comparison {
  std::vector<ModelRow> models;
  std::vector<std::string> incomparable = {};  // differences that --force let through
  std::vector<std::string> notes = {};         // what to know before reading the tables
  std::vector<Confound> confounds = {};        // what else differs between the models
  std::optional<double> target_loss = {};
  LeftOutSteps left_out_steps = {};  // no crossings of the target: landings not all models have
  std::string contract;              // common to all models; "" if there is none
  std::string not_held;    // a sentence on why that is not kept or not known to be; "" if it is
  std::string no_ranking;  // why there is no ranking; "" if there are rankings
  std::vector<Ranking> rankings = {};
};

// UserError if the runs differ in tokenizer, validation data, sequence or validation tokens and
// options.incomparable is kRefuse. The runs must outlive the result.
Comparison compare(std::span<const RunRecord> runs, const CompareOptions& options);

// Differences that forbid a comparison, one sentence each; empty if tokenizer and validation are
// the same. Where a run does not tell its validation shards from the others, any shard counts.
std::vector<std::string> incomparable_differences(std::span<const RunRecord> runs);
// Training shards of other content, likewise: a confound of models (run_confounds()), and no one
// curve of runs of a model.
std::vector<std::string> training_differences(std::span<const RunRecord> runs);
// UserError naming the first of them, if there is one.
void refuse_incomparable(const std::vector<std::string>& differences, const std::string& hint);

}  // namespace assay
