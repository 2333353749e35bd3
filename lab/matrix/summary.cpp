#include "lab/matrix/summary.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "engine/run/run.h"
#include "lab/matrix/table_contract.h"
#include "lab/runs/core_questions.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/shared_order.h"

namespace assay {
namespace {

std::optional<double> final_loss(const RunRecord& run) {
  return find_run_measure("val_loss")->of(run);
}

std::optional<double> seconds(const RunRecord& run) {
  return run.seconds_at(run.steps_done);
}

std::optional<double> tokens_per_s(const RunRecord& run) {
  const auto spent = seconds(run);
  return spent && *spent > 0 ? std::optional<double>(double(run.tokens) / *spent) : std::nullopt;
}

std::optional<Summary> measure(const SeedGroup& runs, const Measure& what) {
  return summarise(values_of(runs, what));
}

SeedValues to_target(const ContractTable& table, const SummaryRow& row, TargetCost cost) {
  return costs_to_target(row.runs, table.target_nats, cost, table.left_out_steps);
}

void fill_target(const ContractTable& table, SummaryRow& row) {
  const auto part = [&](TargetCost cost) { return summarise(to_target(table, row, cost)); };
  row.target_steps = part(TargetCost::kSteps);
  row.target_tokens = part(TargetCost::kTokens);
  row.target_flops = part(TargetCost::kFlops);
  row.target_seconds = part(TargetCost::kSeconds);
  row.reached = row.target_steps ? row.target_steps->n : 0;
}

// By its guard, with the configuration of its cell.
bool was_stopped(const CellStatus& status) {
  return status.state == CellState::kGuard && status.differences.empty();
}

// Its run has not begun, and there is no more to say of it.
bool only_waits(const Cell& cell, const CellStatus& status) {
  return cell.unavailable.empty() && !status.unread && !status.blocked &&
         status.state == CellState::kWaiting && status.differences.empty();
}

// The last step that the run is known to have made. A branch begins with a checkpoint of its trunk.
int64_t last_step(const Cell& cell, const CellStatus& status) {
  return std::max(status.steps_done, status.saved > cell.branch_step ? status.saved : 0);
}

std::string missing_text(const Cell& cell, const CellStatus& status) {
  if (!cell.unavailable.empty()) return cell.name + ": " + cell.unavailable;
  if (status.unread) return cell.name + ": " + status.unread->what();
  if (status.blocked) return cell.name + ": " + status.blocked->what();
  std::string text =
      cell.name + ": " + (status.trained ? "trained" : cell_state_name(status.state));
  if (status.telemetry_lost) text += ", its telemetry is lost";
  if (!status.differences.empty()) text += ", its run has another configuration or other data";
  if (status.state == CellState::kGuard) text += " by its guard (" + status.end + ")";
  const int64_t step = last_step(cell, status);
  if (step == 0) return text;
  text += strprintf(", step %ld", long(step));
  const bool is_cells = status.differences.empty();  // else the run may have other steps to make
  if (is_cells && cell.known_steps) text += strprintf(" of %ld", long(cell.steps()));
  return text;
}

// "2 of 5"
std::string share_of_planned(const SummaryRow& row, size_t runs) {
  return strprintf("%zu of %ld", runs, long(row.planned));
}

// "collapse_stop, non_finite": each once.
std::string guards_text(const std::vector<std::string>& ends) {
  return joined(std::set<std::string>(ends.begin(), ends.end()), ", ");
}

// Why a row has no rank; "" if it has one, or no finished run either.
std::string why_not_ranked(const SummaryRow& row, bool by_target) {
  if (!row.mixed_data.empty()) return "was trained on other data (" + row.mixed_data + ")";
  if (!row.stopped.empty()) {
    return "had " + share_of_planned(row, row.stopped.size()) + " runs stopped by a guard (" +
           guards_text(row.stopped) + ")";
  }
  const size_t runs = row.runs.runs.size();
  if (!by_target || size_t(row.reached) == runs) return "";
  return strprintf("reached the target in %ld of %zu runs", long(row.reached), runs);
}

void rank(ContractTable& table, const Matrix& matrix) {
  const bool by_target = table.ranked_by_target();
  if (!by_target) table.not_ranked = why_no_ranking(table.contract, matrix);
  if (!table.not_ranked.empty()) return;
  for (SummaryRow& row : table.rows) {
    row.not_ranked = why_not_ranked(row, by_target);
    if (row.not_ranked.empty() && row.loss) table.ranking.push_back(&row);
  }
  const auto mean_of = [&](const SummaryRow* row) {
    return by_target ? row->target_steps->mean : row->loss->mean;
  };
  std::stable_sort(
      table.ranking.begin(), table.ranking.end(),
      [&](const SummaryRow* a, const SummaryRow* b) { return mean_of(a) < mean_of(b); });
  const auto ranked_values = [&](const SummaryRow* row) {
    return by_target ? to_target(table, *row, TargetCost::kSteps)
                     : values_of(row->runs, final_loss);
  };
  for (size_t i = 1; i < table.ranking.size(); ++i) {
    const auto difference =
        paired_difference(ranked_values(table.ranking[i - 1]), ranked_values(table.ranking[i]));
    using Relation = ContractTable::Relation;
    Relation relation = difference ? Relation::kOneSeed : Relation::kNoSeed;
    if (difference && difference->summary.no_spread()) relation = Relation::kNoSpread;
    if (difference && difference->summary.interval95) {
      const Interval& interval = *difference->summary.interval95;
      relation = interval.high < 0  ? Relation::kBelow
                 : interval.low > 0 ? Relation::kAbove
                                    : Relation::kUnclear;
    }
    table.relation.push_back(relation);
  }
}

using Statuses = std::map<std::string, CellStatus>;  // by run

// Counts the cells and reads the runs that are done; returns the status of every run.
Statuses read_runs(MatrixSummary& summary, const MatrixFolder& folder) {
  Statuses status;
  for (const Cell& cell : summary.matrix->cells) {
    if (!status.contains(cell.run)) {
      const CellStatus now = status[cell.run] = folder.status(cell);
      if (now.unread) {
        summary.unread.emplace_back(
            folder.run(cell) + " counts as unfinished: " + now.unread->what(), now.unread->hint());
      }
      if (now.state == CellState::kDone && now.differences.empty()) {
        summary.records.emplace(cell.run, read_run(folder.run(cell)));
      }
      if (was_stopped(now) && now.end == run_end_name(RunEnd::kCollapseStop)) {
        summary.stopped.emplace(cell.run, read_run(folder.run(cell)));
      }
      if (was_stopped(now) && now.end == run_end_name(RunEnd::kNonFinite)) {
        summary.not_finite.push_back(cell.run);
      }
    }
    summary.cells += 1;
    summary.done += summary.records.contains(cell.run) ? 1 : 0;
    summary.unavailable += cell.unavailable.empty() ? 0 : 1;
  }
  return status;
}

void sort_by_seed(SeedGroup& group) {
  std::sort(group.runs.begin(), group.runs.end(), [](const RunRecord* a, const RunRecord* b) {
    return a->config.run.seed < b->config.run.seed;
  });
}

// The rows of a contract with their runs, finished or missing.
std::vector<SummaryRow> rows_of(const MatrixSummary& summary, const MatrixContract& contract,
                                const Statuses& status) {
  std::vector<SummaryRow> rows;
  for (const Cell& cell : summary.matrix->cells) {
    if (cell.contract != contract.name) continue;
    const bool same_row = !rows.empty() && rows.back().cell->model == cell.model &&
                          rows.back().cell->precision == cell.precision;
    if (!same_row) rows.emplace_back().cell = &cell;
    SummaryRow& row = rows.back();
    if (!row.cell->configured && cell.configured) row.cell = &cell;
    row.planned += 1;
    const auto record = summary.records.find(cell.run);
    if (record != summary.records.end()) {
      row.runs.runs.push_back(&record->second);
      continue;
    }
    const CellStatus& now = status.at(cell.run);
    row.missing.push_back(missing_text(cell, now));
    row.waiting += only_waits(cell, now) ? 1 : 0;
    if (was_stopped(now)) row.stopped.push_back(now.end);
    const auto stopped = summary.stopped.find(cell.run);
    if (stopped != summary.stopped.end()) row.stopped_by_rule.runs.push_back(&stopped->second);
  }
  for (SummaryRow& row : rows) {
    row.runs.name = row.stopped_by_rule.name = row.cell->model;
    sort_by_seed(row.runs);
    sort_by_seed(row.stopped_by_rule);
  }
  return rows;
}

// Why the scores of CORE in these rows are not of the same questions; "" if they are.
std::string core_questions_of(const std::vector<const SummaryRow*>& rows) {
  std::vector<const RunRecord*> scored;
  for (const SummaryRow* row : rows) {
    for (const RunRecord* run : row->runs.runs) {
      if (find_run_measure("core")->of(*run)) scored.push_back(run);
    }
  }
  return different_core_questions(scored);
}

void fill_measures(SummaryRow& row, const SummaryRow& first) {
  row.loss = measure(row.runs, final_loss);
  row.bits_per_byte = measure(row.runs, find_run_measure("bits_per_byte")->of);
  row.core = measure(row.runs, find_run_measure("core")->of);
  row.seconds = measure(row.runs, seconds);
  row.tokens_per_s = measure(row.runs, tokens_per_s);
  row.steps = measure(
      row.runs, [](const RunRecord& run) { return std::optional<double>(double(run.steps_done)); });
  if (&row != &first) {
    row.difference =
        paired_difference(values_of(row.runs, final_loss), values_of(first.runs, final_loss));
    const auto core = find_run_measure("core")->of;
    if (core_questions_of({&first, &row}).empty()) {
      row.core_difference =
          paired_difference(values_of(row.runs, core), values_of(first.runs, core));
    }
    row.core_row_difference = core_row_difference(row.runs, first.runs);
  }
  fill_health(row);
}

// The loss that time is measured to: that of the configuration, else the first row's worst.
void choose_target(ContractTable& table) {
  const SummaryRow& first = table.rows.front();
  table.target_nats = first.cell->config.run.target_loss;
  table.target_given = table.target_nats > 0;
  if (table.target_given) return;
  for (const SeedValue& v : values_of(first.runs, final_loss)) {
    table.target_nats = std::max(table.target_nats, v.value);
  }
}

ContractTable table_of(const MatrixSummary& summary, const MatrixContract& contract,
                       const Statuses& status) {
  ContractTable table;
  table.contract = contract;
  table.rows = rows_of(summary, contract, status);
  std::vector<const SummaryRow*> rows;
  for (SummaryRow& row : table.rows) {
    fill_measures(row, table.rows.front());
    rows.push_back(&row);
  }
  table.other_core_questions = core_questions_of(rows);
  table.own_steps = takes_own_steps(contract, *summary.matrix);
  table.not_held = why_not_held(table, rows);
  table.confounds = confounds_of(table.rows);
  choose_target(table);
  if (table.target_nats > 0) {
    std::vector<const RunRecord*> runs;
    for (const SummaryRow& row : table.rows) {
      runs.insert(runs.end(), row.runs.runs.begin(), row.runs.runs.end());
    }
    table.left_out_steps = uneven_landings(runs);
    for (SummaryRow& row : table.rows) fill_target(table, row);
    const SeedValues first = to_target(table, table.rows.front(), TargetCost::kSteps);
    for (size_t i = 1; i < table.rows.size(); ++i) {
      SummaryRow& row = table.rows[i];
      row.target_steps_difference =
          paired_difference(to_target(table, row, TargetCost::kSteps), first);
    }
  }
  return table;
}

std::vector<SeedGroup> finished_groups(const std::vector<ContractTable>& tables) {
  std::vector<SeedGroup> groups;
  for (const ContractTable& table : tables) {
    for (const SummaryRow& row : table.rows) {
      if (!row.runs.runs.empty()) groups.push_back(row.runs);
    }
  }
  return groups;
}

// "2 of 6 runs trained on their own validation data (x.bin): ..."
std::string trained_validation_of(const std::map<std::string, RunRecord>& records) {
  const RunRecord* first = nullptr;
  size_t runs = 0;
  for (const auto& [name, run] : records) {
    if (trained_validation_files(run).empty()) continue;
    if (runs++ == 0) first = &run;
  }
  if (runs < 2) return first == nullptr ? "" : trained_validation_text(*first);
  return strprintf(
      "%zu of %zu runs trained on their own validation data (%s): their losses are "
      "not those of unseen text",
      runs, records.size(), trained_validation_files(*first).c_str());
}

}  // namespace

void mark_mixed_data(std::vector<ContractTable>& tables, bool models_differ) {
  const RunRecord* first = nullptr;
  for (ContractTable& table : tables) {
    for (SummaryRow& row : table.rows) {
      if (models_differ) first = nullptr;
      for (const RunRecord* run : runs_with_routers(row).runs) {
        if (run->data_sha256.empty()) continue;
        if (first == nullptr) first = run;
        if (row.mixed_data.empty()) row.mixed_data = different_shards(*first, *run);
      }
    }
  }
}

void fill_health(SummaryRow& row) {
  for (const RunRecord* run : runs_with_routers(row).runs) {
    if (!run->health) continue;
    row.worst_load = std::max(row.worst_load.value_or(0), run->health->worst_max_load_norm);
    const RouterState state = router_state(*run->health);
    row.collapsed += state == RouterState::kCollapsed ? 1 : 0;
    row.uneven += state == RouterState::kUneven ? 1 : 0;
    row.restless += state == RouterState::kRestless ? 1 : 0;
    row.too_early += state == RouterState::kTooEarly ? 1 : 0;
  }
}

SeedGroup runs_with_routers(const SummaryRow& row) {
  SeedGroup group = row.runs;
  const auto& stopped = row.stopped_by_rule.runs;
  group.runs.insert(group.runs.end(), stopped.begin(), stopped.end());
  sort_by_seed(group);
  return group;
}

SeedGroup measured_runs(const SummaryRow& row, const RunMeasure& measure) {
  return is_of_routers(measure) ? runs_with_routers(row) : row.runs;
}

std::string stopped_text(const SummaryRow& row, const RunMeasure& measure) {
  std::vector<std::string> ends = row.stopped;
  if (is_of_routers(measure)) std::erase(ends, run_end_name(RunEnd::kCollapseStop));
  if (ends.empty()) return "";
  return share_of_planned(row, ends.size()) + " runs of " + row.cell->model +
         (ends.size() == 1 ? " was" : " were") + " stopped by a guard (" + guards_text(ends) + ")";
}

std::vector<Confound> confounds_of(const std::vector<SummaryRow>& rows) {
  std::map<std::string, std::vector<SeedGroup>> by_precision;
  for (const SummaryRow& row : rows) {
    if (row.runs.runs.empty()) continue;
    SeedGroup& group = by_precision[row.cell->precision].emplace_back(row.runs);
    group.name = row.cell->model;
  }
  std::vector<Confound> all;
  for (const auto& [precision, groups] : by_precision) {
    for (const Confound& c : run_confounds(groups)) {
      const auto same = [&](const Confound& other) { return other.text == c.text; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(c);
    }
  }
  return all;
}

std::string row_name(const SummaryRow& row, const ContractTable& table) {
  const bool several =
      std::any_of(table.rows.begin(), table.rows.end(), [&](const SummaryRow& other) {
        return other.cell->precision != table.rows.front().cell->precision;
      });
  return several ? row.cell->model + " " + row.cell->precision : row.cell->model;
}

bool SummaryRow::without_run() const {
  return runs.runs.empty() && stopped.empty() && stopped_by_rule.runs.empty();
}

std::optional<double> SummaryRow::total() const {
  return cell->configured ? std::optional(double(cell->audit.total)) : std::nullopt;
}

std::optional<double> SummaryRow::active() const {
  return cell->configured ? std::optional(double(cell->audit.active)) : std::nullopt;
}

std::optional<double> SummaryRow::tokens() const {
  if (!cell->configured) return std::nullopt;
  return steps ? steps->mean * double(cell->config.run.batch_tokens) : double(cell->tokens());
}

std::optional<double> SummaryRow::flops() const {
  const std::optional<double> all = tokens();
  return all ? std::optional(*all * double(cell->audit.flops_per_token)) : std::nullopt;
}

MatrixSummary summarise_matrix(const Matrix& matrix, const MatrixFolder& folder) {
  MatrixSummary summary{.matrix = &matrix,
                        .records = {},
                        .stopped = {},
                        .different_data = different_data(matrix),
                        .seal = recorded_seal(folder),
                        .tables = {}};
  const Statuses status = read_runs(summary, folder);
  for (const MatrixContract& contract : matrix.file.contracts) {
    summary.tables.push_back(table_of(summary, contract, status));
  }
  mark_mixed_data(summary.tables, !summary.different_data.empty());
  for (ContractTable& table : summary.tables) {
    rank(table, matrix);
    for (const SummaryRow& row : table.rows) {
      if (summary.mixed_data.empty()) summary.mixed_data = row.mixed_data;
    }
  }
  summary.trained_validation = trained_validation_of(summary.records);
  summary.shared_order = shared_order_text(finished_groups(summary.tables));
  return summary;
}

void show_only(MatrixSummary& summary, const std::vector<const Cell*>& cells,
               const std::vector<std::string>& only) {
  summary.only = only;
  std::set<std::pair<std::string, std::string>> selected;
  for (const Cell* cell : cells) selected.emplace(cell->model, cell->precision);
  for (ContractTable& table : summary.tables) {
    for (SummaryRow& row : table.rows) {
      row.is_shown = selected.contains({row.cell->model, row.cell->precision});
    }
  }
}

const char* relation_name(ContractTable::Relation relation) {
  switch (relation) {
    case ContractTable::Relation::kBelow:
      return "below";
    case ContractTable::Relation::kAbove:
      return "above";
    case ContractTable::Relation::kUnclear:
      return "unclear";
    case ContractTable::Relation::kNoSpread:
      return "no_spread";
    case ContractTable::Relation::kOneSeed:
      return "one_seed";
    case ContractTable::Relation::kNoSeed:
      return "no_seed";
  }
  return "";
}

}  // namespace assay
