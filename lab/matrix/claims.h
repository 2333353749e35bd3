// Judges the claims in the file of a matrix: each compares a measure of one model with a number or,
// seed by seed, with the same measure of another model. The verdict follows from Student's 95%
// interval over the seeds, of a share of the runs (`collapsed`) from an exact test
// (lab/runs/share_claim.h):
//
//   holds, fails, undecided  as lab/runs/interval_claim.h says; undecided also with one seed, if
//                            a few seeds have all the same value (no_spread()), if not every run
//                            has the measure, if a guard stopped a run before it had it, if the
//                            runs have other data, or fewer logged steps than the measure's window,
//                            or if it is on losses of runs that stopped at their target
//   no run                   nothing to compare yet
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/summary.h"

namespace assay {

// A part of what is compared: a measure of a row's runs, added or subtracted. The value of a seed
// is the sum over the terms.
struct ClaimTerm {
  const SummaryRow* row = nullptr;
  std::optional<double> share;  // of run.steps; else at the moment of the measure
  double sign = 1;
};

struct ClaimResult {
  const MatrixClaim* claim = nullptr;
  std::string contract, precision;  // where it was judged: "activeDN", "activeDN to totalDN"
  std::vector<ClaimTerm> terms;
  ClaimVerdict verdict = ClaimVerdict::kNoRun;
  std::string why;  // reason other than the interval: "one seed", ...
  // Of why_not_held() the two models: the verdict is about their runs, not about the contract.
  std::string not_held = {};
  // Of the two models, or, with `across`, the comparison at its two places, the second first.
  std::optional<Summary> value, other;
  std::optional<Summary> compared;  // the sum of the terms
  int64_t planned = 0;              // seeds
  // Of a share of the runs, which has no interval: "collapsed in 4 of 5 seeds and in 0 of 5".
  std::string counts;

  // Of the test that `compared` is on the claim's bound (with `near`, the bound that is harder to
  // exclude), Student's, of equal values the sign test, of a share of the runs the exact one, and
  // Holm's adjustment of it over all results that have one.
  std::optional<double> p, p_holm;
  bool after_holm() const { return p_holm && *p_holm <= 0.05; }
  // Seeds beyond those finished with which the interval would decide, if their mean and spread
  // stayed as they are. Of undecided results; nullopt also if kMostValues would not.
  std::optional<int64_t> more_seeds;
  // Undecided because the values are known to the validation (the logged step) before: that reaches
  // the bound, and is more than the standard error of three or more seeds, so that further ones
  // would hardly help.
  bool is_coarse = false;
};

// Every claim under every contract and precision, in this order; those across contracts once per
// precision, those across precisions once per contract. The results point to the claims and rows.
std::vector<ClaimResult> evaluate_claims(const std::vector<MatrixClaim>& claims,
                                         const std::vector<ContractTable>& tables);

// evaluate_claims() of the matrix, without those of which no row is shown (show_only()).
std::vector<ClaimResult> shown_claims(const MatrixSummary& summary);

// Names of the claims that further seeds could decide, each once.
std::vector<std::string> undecided_claims(const std::vector<ClaimResult>& results);

// "" without claims. seal: that of the claims, if recorded.
std::string claims_markdown(const std::vector<ClaimResult>& results,
                            const std::optional<ClaimSeal>& seal);

}  // namespace assay
