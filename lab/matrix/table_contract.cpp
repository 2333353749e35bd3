#include "lab/matrix/table_contract.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "lab/compare/contract_quantity.h"

namespace assay {
namespace {

// Steps of the cells under a contract: fewest and most; nullopt if none are known.
std::optional<std::pair<int64_t, int64_t>> range_of_steps(const Matrix& matrix,
                                                          const std::string& contract) {
  std::optional<std::pair<int64_t, int64_t>> range;
  for (const Cell& cell : matrix.cells) {
    if (cell.contract != contract || !cell.known_steps) continue;
    if (!range) range = {cell.steps(), cell.steps()};
    range->first = std::min(range->first, cell.steps());
    range->second = std::max(range->second, cell.steps());
  }
  return range;
}

// Of a table without one: what all runs brought, or nothing.
std::optional<ContractKind> kind_of(const MatrixContract& contract,
                                    const std::vector<SeedGroup>& models) {
  if (contract.kind) return contract.kind;
  const ContractKind first = models.front().config().contract.kind;
  for (const SeedGroup& model : models) {
    for (const RunRecord* run : model.runs) {
      if (run->config.contract.kind != first) return std::nullopt;
    }
  }
  return first;
}

}  // namespace

bool takes_own_steps(const MatrixContract& contract, const Matrix& matrix) {
  if (contract.kind && !takes_run_steps(*contract.kind)) return false;
  const auto range = range_of_steps(matrix, contract.name);
  return range && range->first < range->second;
}

std::string why_no_ranking(const MatrixContract& contract, const Matrix& matrix) {
  if (!takes_own_steps(contract, matrix)) return "";
  for (const Cell& cell : matrix.cells) {
    const bool has_contract = cell.configured && !takes_run_steps(cell.config.contract.kind);
    if (!contract.kind && has_contract) return "";
  }
  const auto [fewest, most] = *range_of_steps(matrix, contract.name);
  return strprintf("the models take %ld to %ld steps", long(fewest), long(most));
}

std::string why_not_held(const ContractTable& table, const std::vector<const SummaryRow*>& rows) {
  std::vector<SeedGroup> models;
  for (const SummaryRow* row : rows) {
    if (!row->runs.runs.empty()) models.push_back({row_name(*row, table), row->runs.runs});
  }
  if (models.empty()) return "";
  const std::optional<ContractKind> kind = kind_of(table.contract, models);
  // Seeds of one model measure steps of their own.
  if (models.size() < 2 && kind != ContractKind::kSeconds) return "";
  if (!kind) return "Not held fixed: the models are under different contracts of their own.";
  // Of steps of their own the table says so itself.
  const PlannedSteps steps = table.own_steps ? PlannedSteps::kOfEachModel : PlannedSteps::kEqual;
  const std::optional<NotHeld> found = not_held_fixed(*kind, models, steps);
  return found ? found->sentence : "";
}

std::string contract_text(const MatrixContract& c, const Matrix& matrix) {
  std::string text;
  const std::string own_steps = "each model's own number of steps";
  const bool own = takes_own_steps(c, matrix);
  if (!c.kind || (own && c.kind == ContractKind::kSteps)) return own_steps;
  if (c.kind == ContractKind::kActiveDN)
    text = strprintf("%.6g tokens per active parameter", c.coefficient);
  if (c.kind == ContractKind::kTotalDN)
    text = strprintf("%.6g tokens per parameter", c.coefficient);
  if (c.kind == ContractKind::kFlops) text = strprintf("%.6g training FLOPs", c.coefficient);
  if (c.kind == ContractKind::kSeconds) text = strprintf("%g seconds of training", c.coefficient);
  if (c.kind == ContractKind::kActiveWidth) text = strprintf("active FFN width %g", c.coefficient);
  if (own) text += ", " + own_steps;
  if (c.kind == ContractKind::kSteps) text = "the same steps";
  if (!c.shared_in_total) text += ", shared experts left out";
  // Of seconds the length of the reference's step is given, and no run of it measures it.
  if (!c.reference.empty() && c.kind == ContractKind::kSeconds) {
    text += ", what " + c.reference + "'s steps take by its contract.step_seconds";
  } else if (!c.reference.empty()) {
    text += ", as in " + c.reference + "'s run";
  }
  if (!c.branch_of.empty()) {
    return text +
           strprintf(", a branch of %s that ends at %g%%", c.branch_of.c_str(), 100 * c.fraction);
  }
  if (c.fraction < 1) text += strprintf(", %g%% of it", 100 * c.fraction);
  return text;
}

}  // namespace assay
