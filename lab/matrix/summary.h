// Results of a matrix: for every contract one row per model and precision, over the finished seeds.
// A ranking belongs to its contract; a difference to the first row is taken seed by seed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/state.h"
#include "lab/runs/confounds.h"
#include "lab/runs/core_answers.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/seed_groups.h"
#include "lab/runs/time_to_target.h"

namespace assay {

struct SummaryRow {
  // Model, precision, counts: of the first seed that has a configuration; without any of the first.
  const Cell* cell = nullptr;
  SeedGroup runs;                    // finished, by ascending seed
  int64_t planned = 0;               // seeds
  std::vector<std::string> missing;  // "CELL: partial, step 40 of 60"
  size_t waiting = 0;                // of `missing`: runs that have not begun
  // How the runs ended that a guard stopped ("non_finite"), one each. They are in no mean, and what
  // is left is a selection: the row has no rank.
  std::vector<std::string> stopped;
  SeedGroup stopped_by_rule;  // those of telemetry.collapse_stop, whose routers were measured
  // Why its runs are not of the data of the others: "training data of moe-seed3 is ..., of ...";
  // "" if they are. The row has no rank, and claims about it are undecided.
  std::string mixed_data = {};
  std::string not_ranked;  // "had 2 of 5 runs stopped by a guard (non_finite)"; "" if ranked

  std::optional<Summary> loss, bits_per_byte, core, steps, seconds, tokens_per_s;
  // Minus the first row's; absent in that row.
  std::optional<PairedDifference> difference;         // of the loss
  std::optional<PairedDifference> core_difference;    // over the seeds
  std::optional<CoreDifference> core_row_difference;  // over the rows of CORE

  // To the table's target, over the runs that reached it.
  int64_t reached = 0;
  std::optional<Summary> target_steps, target_tokens, target_seconds, target_flops;
  std::optional<PairedDifference> target_steps_difference;  // minus the first row's

  // Of runs_with_routers().
  std::optional<double> worst_load;  // K max_load of the worst layer of the worst run
  int64_t collapsed = 0, uneven = 0, restless = 0, too_early = 0;  // runs, by router_state()

  // No run has finished, and no guard has stopped one: the tables name such rows in one line.
  bool without_run() const;
  bool is_shown = true;  // by show_only()

  // Absent for a recorded matrix that has no configuration of the row (yet).
  std::optional<double> total() const, active() const;  // parameters
  std::optional<double> tokens() const;  // mean over the runs; planned if there are none
  std::optional<double> flops() const;
};

// The runs of a row whose routers are measured, by ascending seed: the finished ones and those that
// telemetry.collapse_stop ended, since what it stopped is what is measured.
SeedGroup runs_with_routers(const SummaryRow& row);
// The runs of a row in which a measure is taken: those for one of the routers, else the finished
// ones.
SeedGroup measured_runs(const SummaryRow& row, const RunMeasure& measure);
// "2 of 5 runs of moe were stopped by a guard (non_finite)": of runs that are not among
// measured_runs(); "" if there are none.
std::string stopped_text(const SummaryRow& row, const RunMeasure& measure);

struct ContractTable {
  MatrixContract contract;
  double target_nats = 0;     // 0 = none yet
  bool target_given = false;  // by run.target_loss; else the worst final loss of the first row
  LeftOutSteps left_out_steps = {};  // no crossings: landings that not every row has
  bool ranked_by_target() const { return target_given; }
  std::vector<SummaryRow> rows;
  // Why the runs' scores of CORE are not of the same questions (lab/runs/core_questions.h); "" if
  // they are. A row that was asked others than the first one has no core_difference.
  std::string other_core_questions;
  std::vector<Confound> confounds;  // of confounds_of() the rows
  bool own_steps = false;           // of takes_own_steps()
  std::string not_held = {};        // of why_not_held() all rows

  // Best first: rows with a loss of which no guard stopped a run, by their mean final loss; where
  // runs stop at a target, of these the rows of which every run reached it, by their mean steps to
  // it, since all losses are then about the target. relation[i] compares ranking[i] with
  // ranking[i + 1] in that measure.
  std::vector<const SummaryRow*> ranking;
  std::string not_ranked;  // why there is none: "the models take 40 to 120 steps"; "" if there is
  enum class Relation {
    kBelow,     // the 95% interval of the paired difference excludes 0
    kAbove,     // it excludes 0 the other way: the shared seeds contradict the means of all
    kUnclear,   // it includes 0
    kNoSpread,  // equal in a few seeds: there is no interval
    kOneSeed,   // one shared seed: there is no interval
    kNoSeed,    // no shared seed
  };
  std::vector<Relation> relation;
};
// Its model, with its precision where the table has several.
std::string row_name(const SummaryRow& row, const ContractTable& table);
// worst_load and the runs of each state, of runs_with_routers().
void fill_health(SummaryRow& row);

// Marks the rows whose runs recorded other data than the first run of the matrix, or, where
// models were given other data (different_data()), than the first run of their row.
void mark_mixed_data(std::vector<ContractTable>& tables, bool models_differ);

// What differs between the rows beside models and contract. Precisions are what a table of several
// compares, so each row is compared with those of its own.
std::vector<Confound> confounds_of(const std::vector<SummaryRow>& rows);

// "below", "above", "unclear", "no_spread", "one_seed", "no_seed".
const char* relation_name(ContractTable::Relation relation);

// Its tables point into its records: it can be moved, not copied.
struct MatrixSummary {
  const Matrix* matrix = nullptr;
  std::map<std::string, RunRecord> records;  // finished runs, by name
  std::map<std::string, RunRecord> stopped;  // by telemetry.collapse_stop
  // Runs that diverged, by name: stopped since a value was NaN or infinite. They are in no mean.
  std::vector<std::string> not_finite = {};
  int64_t cells = 0, done = 0, unavailable = 0;
  std::vector<UserError> unread = {};  // "RUN counts as unfinished: WHY it cannot be read"
  std::string different_data;          // of different_data() in lab/matrix/matrix.h
  std::string mixed_data = {};         // the first of the rows'; "" if there is none
  // "2 of 6 runs trained on their own validation data (x.bin): ..."; "" if none did.
  std::string trained_validation = {};
  std::string shared_order = {};  // of shared_order_text(); "" if seeds have orders of their own
  std::optional<ClaimSeal> seal;  // of matrix.json
  std::vector<std::string> only = {};  // --only of what is printed, if it has not all rows
  std::vector<ContractTable> tables;
  bool complete() const { return done == cells; }
};

// The matrix must outlive the summary.
MatrixSummary summarise_matrix(const Matrix& matrix, const MatrixFolder& folder);

// Leaves the rows of these cells, which --only selects, and the claims on them in what is printed.
// Differences, rankings, counts of cells and p (Holm) stay those of the whole matrix.
void show_only(MatrixSummary& summary, const std::vector<const Cell*>& cells,
               const std::vector<std::string>& only);

}  // namespace assay
