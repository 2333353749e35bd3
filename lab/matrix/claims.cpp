#include "lab/matrix/claims.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/runs/markdown_table.h"
#include "lab/runs/run_measures.h"

namespace assay {
namespace {

const SummaryRow* find_row(const ContractTable& table, const std::string& model,
                           const std::string& precision) {
  for (const SummaryRow& row : table.rows) {
    if (row.cell->model == model && row.cell->precision == precision) return &row;
  }
  return nullptr;
}

// "2 of 3 runs of baseline have the measure"; "" if all have it.
std::string runs_without(const SummaryRow& row, const SeedValues& values) {
  if (values.size() == row.runs.runs.size()) return "";
  return strprintf("%zu of %zu runs of %s have the measure", values.size(), row.runs.runs.size(),
                   row.cell->model.c_str());
}

ClaimResult evaluate(const MatrixClaim& claim, const ContractTable& table, const SummaryRow& row) {
  ClaimResult result{.claim = &claim,
                     .contract = table.contract.name,
                     .precision = row.cell->precision,
                     .why = {},
                     .value = {},
                     .other = {},
                     .compared = {},
                     .planned = row.planned};
  const RunMeasure* measure = find_run_measure(claim.measure);
  CHECK(measure != nullptr, "no measure %s", claim.measure.c_str());
  const SeedValues values = values_of(row.runs, measure->of);
  result.value = summarise(values);
  result.why = runs_without(row, values);
  if (claim.other.empty()) {
    result.compared = result.value;
  } else {
    const SummaryRow* other = find_row(table, claim.other, row.cell->precision);
    CHECK(other != nullptr, "no row of %s", claim.other.c_str());
    const SeedValues others = values_of(other->runs, measure->of);
    result.other = summarise(others);
    if (result.why.empty()) result.why = runs_without(*other, others);
    if (const auto difference = paired_difference(values, others)) {
      result.compared = difference->summary;
    }
    if (row.runs.runs.empty() || other->runs.runs.empty()) return result;
  }
  if (row.runs.runs.empty()) return result;
  result.verdict = ClaimVerdict::kUndecided;
  if (!result.why.empty() || !result.compared) return result;
  if (!result.compared->interval95) {
    result.why = "one seed";
    return result;
  }
  result.verdict = claim_verdict(claim, *result.compared->interval95);
  return result;
}

std::string number(const std::optional<Summary>& s) {
  return s ? strprintf("%.4g", s->mean) : "-";
}

}  // namespace

const char* claim_verdict_name(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::kHolds:
      return "holds";
    case ClaimVerdict::kFails:
      return "fails";
    case ClaimVerdict::kUndecided:
      return "undecided";
    case ClaimVerdict::kNoRun:
      return "no run";
  }
  return "";
}

ClaimVerdict claim_verdict(const MatrixClaim& claim, const Interval& interval) {
  const auto of = [](bool holds, bool fails) {
    return holds ? ClaimVerdict::kHolds : fails ? ClaimVerdict::kFails : ClaimVerdict::kUndecided;
  };
  using Relation = MatrixClaim::Relation;
  if (claim.relation == Relation::kBelow) {
    return of(interval.high < claim.number, interval.low >= claim.number);
  }
  if (claim.relation == Relation::kAbove) {
    return of(interval.low > claim.number, interval.high <= claim.number);
  }
  const Interval wanted{.low = claim.number - claim.within, .high = claim.number + claim.within};
  return of(wanted.low <= interval.low && interval.high <= wanted.high, !wanted.overlaps(interval));
}

std::vector<ClaimResult> evaluate_claims(const std::vector<MatrixClaim>& claims,
                                         const std::vector<ContractTable>& tables) {
  std::vector<ClaimResult> results;
  for (const ContractTable& table : tables) {
    std::vector<std::string> precisions;
    for (const SummaryRow& row : table.rows) {
      const std::string& name = row.cell->precision;
      if (std::count(precisions.begin(), precisions.end(), name) == 0) precisions.push_back(name);
    }
    for (const std::string& precision : precisions) {
      for (const MatrixClaim& claim : claims) {
        const SummaryRow* row = find_row(table, claim.of, precision);
        CHECK(row != nullptr, "no row of %s", claim.of.c_str());
        results.push_back(evaluate(claim, table, *row));
      }
    }
  }
  return results;
}

std::string claims_markdown(const std::vector<ClaimResult>& results) {
  if (results.empty()) return "";
  const auto differs = [&](std::string ClaimResult::*part) {
    return std::any_of(results.begin(), results.end(),
                       [&](const ClaimResult& r) { return r.*part != results.front().*part; });
  };
  const bool contracts = differs(&ClaimResult::contract),
             precisions = differs(&ClaimResult::precision);
  MarkdownRows rows = {
      {"claim", "statement", "verdict", "n", "value", "against", "mean", "95% interval"}};
  long holds = 0, fails = 0;
  for (const ClaimResult& r : results) {
    std::string name = r.claim->name;
    if (contracts) name += ", " + r.contract;
    if (precisions) name += ", " + r.precision;
    const std::string verdict = claim_verdict_name(r.verdict);
    holds += r.verdict == ClaimVerdict::kHolds;
    fails += r.verdict == ClaimVerdict::kFails;
    const long n = r.compared ? long(r.compared->n) : 0;
    std::string interval = "-";
    if (r.compared && r.compared->interval95) {
      interval =
          strprintf("%.4g to %.4g", r.compared->interval95->low, r.compared->interval95->high);
    }
    rows.push_back(
        {name, r.claim->text(), r.why.empty() ? verdict : verdict + ": " + r.why,
         n == r.planned ? strprintf("%ld", n) : strprintf("%ld of %ld", n, long(r.planned)),
         number(r.value), r.claim->other.empty() ? "-" : number(r.other), number(r.compared),
         interval});
  }
  std::string text = "## Claims\n\n" + markdown_table(rows, 3) + "\n";
  text += strprintf(
      "%ld of %zu hold, %ld fail. holds: the whole 95%% interval over the seeds satisfies the "
      "claim; fails: no part of it does.\n",
      holds, results.size(), fails);
  return text;
}

}  // namespace assay
