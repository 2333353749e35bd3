#include "lab/matrix/matrix_receipt.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/shell_word.h"
#include "engine/run/run_dir.h"
#include "lab/matrix/claims.h"
#include "lab/receipt/make.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/time_to_target.h"

namespace assay {
namespace {

using Runs = std::vector<std::string>;

// Folders of the runs with these seeds, in their order.
Runs runs_of(const SeedGroup& group, const std::vector<int64_t>& seeds) {
  Runs runs;
  for (const int64_t seed : seeds) {
    for (const RunRecord* run : group.runs) {
      if (run->config.run.seed == seed) runs.push_back(run->name);
    }
  }
  return runs;
}

std::vector<int64_t> all_seeds(const SeedGroup& group) {
  std::vector<int64_t> seeds;
  for (const RunRecord* run : group.runs) seeds.push_back(run->config.run.seed);
  return seeds;
}

// Mean and, from two values on, spread and interval.
void add_statistics(std::vector<ClaimSpec>& claims, const std::string& name,
                    const std::string& unit, const ReceiptJson& of, const Runs& runs,
                    const Runs& minus = {}) {
  if (runs.empty()) return;
  for (const char* statistic : {"mean", "sd", "interval95_low", "interval95_high"}) {
    if (runs.size() == 1 && std::string(statistic) != "mean") continue;
    claims.push_back({.name = name + "." + statistic,
                      .unit = unit,
                      .how = how_over_runs(statistic, of, runs, minus)});
  }
}

void add_row(std::vector<ClaimSpec>& claims, const ContractTable& table, const SummaryRow& row) {
  const std::string name = table.contract.name + "." + row.cell->model + "." + row.cell->precision;
  const Runs runs = runs_of(row.runs, all_seeds(row.runs));
  const ReceiptJson loss = how_eval("val", "loss_nats", "last");
  add_statistics(claims, name + ".val_loss", "nats", loss, runs);
  if (row.bits_per_byte && row.bits_per_byte->n == int64_t(runs.size())) {
    add_statistics(claims, name + ".val_bits_per_byte", "bits",
                   how_eval("val", "bits_per_byte", "last"), runs);
  }
  if (row.reached > 0 && row.reached == int64_t(runs.size())) {
    add_statistics(claims, name + ".steps_to_target", "steps",
                   how_first_at_or_below(table.target_nats, "step", table.left_out_steps), runs);
  }
  if (row.difference) {
    const auto& seeds = row.difference->seeds;
    add_statistics(claims, name + ".val_loss_minus_first", "nats", loss, runs_of(row.runs, seeds),
                   runs_of(table.rows.front().runs, seeds));
  }
}

// Every measure that none of its runs lacks (measured_runs()) and that add_row() does not claim.
void add_measures(std::vector<ClaimSpec>& claims, const ContractTable& table,
                  const SummaryRow& row) {
  const std::string name = table.contract.name + "." + row.cell->model + "." + row.cell->precision;
  for (const RunMeasure& measure : run_measures()) {
    const std::string_view which = measure.name;
    if (which == "val_loss" || which == "bits_per_byte") continue;
    const SeedGroup group = measured_runs(row, measure);
    const SeedValues values = values_of(group, measure.of);
    if (values.empty() || values.size() != group.runs.size()) continue;
    add_statistics(claims, name + "." + measure.name, "", how_measure(measure.name),
                   runs_of(group, all_seeds(group)));
  }
}

// The seeds of which the rows of all terms have a run with the measure.
std::vector<int64_t> shared_seeds(const std::vector<ClaimTerm>& terms, const RunMeasure& measure) {
  std::vector<int64_t> seeds = all_seeds(measured_runs(*terms.front().row, measure));
  for (const ClaimTerm& term : terms) {
    const std::vector<int64_t> others = all_seeds(measured_runs(*term.row, measure));
    std::erase_if(seeds, [&](int64_t seed) {
      return std::find(others.begin(), others.end(), seed) == others.end();
    });
  }
  return seeds;
}

// The comparison of a judged claim, and its verdict.
void add_claim(std::vector<ClaimSpec>& claims, const ClaimResult& result) {
  const bool judged =
      result.why.empty() || result.why == kNoSpread || result.why == kStoppedAtTarget;
  if (!result.compared || result.compared->n == 1 || !judged) return;
  const RunMeasure& measure = *find_run_measure(result.claim->measure);
  const std::vector<int64_t> seeds = shared_seeds(result.terms, measure);
  std::vector<ReceiptTerm> terms;
  for (const ClaimTerm& term : result.terms) {
    terms.push_back({.sign = term.sign,
                     .of = how_measure(result.claim->measure, term.share),
                     .runs = runs_of(measured_runs(*term.row, measure), seeds)});
  }
  const std::string name =
      "claim." + result.contract + "." + result.precision + "." + result.claim->name;
  for (const char* statistic : {"mean", "interval95_low", "interval95_high"}) {
    claims.push_back(
        {.name = name + "." + statistic, .unit = "", .how = how_over_terms(statistic, terms)});
  }
  const MatrixClaim& claim = *result.claim;
  claims.push_back({.name = name + ".verdict",
                    .unit = "",
                    .how = how_verdict(claim.relation, claim.number, claim.within, terms)});
}

// True of a run that has none, since it was killed before it wrote one, or one of other steps,
// since it was trained further and killed.
bool needs_receipt(const std::string& run, const std::string& own, const RunRecord& record) {
  std::error_code ignored;
  if (!std::filesystem::exists(own, ignored)) return true;
  try {
    return read_receipt(own).sealed_step != record.steps_done;
  } catch (const DamagedReceipt& damaged) {
    throw UserError(own + ": " + damaged.what(),
                    "`assay receipt make " + shell_word(run) +
                        "` makes it anew, of the run's files as they are now");
  }
}

// With a receipt of its own, of the steps that it has done.
void add_run(Bundle& bundle, const MatrixFolder& folder, const std::string& run,
             const RunRecord& record) {
  bundle.runs.push_back(run);
  if (!record.reused_from.empty()) bundle.files.push_back(run + "/" + kReusedFile);
  const std::string path = folder.file(run), own = folder.file(run + "/" + kReceiptName);
  if (needs_receipt(path, own, record)) write_receipt(own, make_run_receipt(path, path));
}

}  // namespace

Receipt make_matrix_receipt(const MatrixFolder& folder, const MatrixSummary& summary) {
  Bundle bundle{.folder = folder.path(),
                .name = summary.matrix->file.name,
                .runs = {},
                .files = {"summary.md", "summary.csv", "summary.json", "runs.csv"},
                .claims = {}};
  for (const auto* records : {&summary.records, &summary.stopped}) {
    for (const auto& [run, record] : *records) add_run(bundle, folder, run, record);
  }
  if (summary.seal && !summary.matrix->file.claims.empty()) {
    bundle.environment["claims_seal"] = seal_to_json(*summary.seal);
  }
  if (!summary.mixed_data.empty()) bundle.environment["different_data"] = summary.mixed_data;
  for (const std::string& run : summary.not_finite) {
    bundle.environment["not_finite_runs"].push_back(run);
  }
  for (const ContractTable& table : summary.tables) {
    ReceiptJson contract;
    contract["kind"] = table.contract.kind_text();
    contract["coefficient"] = table.contract.coefficient;
    contract["reference"] = table.contract.reference;
    bundle.contract[table.contract.name] = contract;
    for (const SummaryRow& row : table.rows) {
      add_row(bundle.claims, table, row);
      add_measures(bundle.claims, table, row);
    }
  }
  for (const ClaimResult& r : evaluate_claims(summary.matrix->file.claims, summary.tables)) {
    add_claim(bundle.claims, r);
  }
  try {
    return make_bundle_receipt(bundle);
  } catch (const NotAvailable& absent) {
    throw UserError(folder.path() + " cannot have a receipt: " + absent.what(),
                    "a run lacks what its row of the tables was made of: `assay receipt verify` of "
                    "that run names it; then give the same command again");
  }
}

}  // namespace assay
