// Judges the claims in the file of a matrix: each compares a measure of one model with a number or,
// seed by seed, with the same measure of another model. The verdict follows from Student's 95%
// interval over the seeds:
//
//   holds      the whole interval satisfies the claim
//   fails      no part of it does
//   undecided  a part of it does, there is one seed, or not every run has the measure
//   no run     nothing to compare yet
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/summary.h"

namespace assay {

enum class ClaimVerdict { kHolds, kFails, kUndecided, kNoRun };
const char* claim_verdict_name(ClaimVerdict verdict);

struct ClaimResult {
  const MatrixClaim* claim = nullptr;
  std::string contract, precision;  // of the table
  ClaimVerdict verdict = ClaimVerdict::kNoRun;
  std::string why;                      // reason other than the interval: "one seed", ...
  std::optional<Summary> value, other;  // of the two models
  std::optional<Summary> compared;      // the value, or the differences seed by seed
  int64_t planned = 0;                  // seeds
};

// Every claim under every contract and precision, in this order.
std::vector<ClaimResult> evaluate_claims(const std::vector<MatrixClaim>& claims,
                                         const std::vector<ContractTable>& tables);

// The verdict for a 95% interval of `compared`: holds, fails or undecided.
ClaimVerdict claim_verdict(const MatrixClaim& claim, const Interval& interval);

// "" without claims.
std::string claims_markdown(const std::vector<ClaimResult>& results);

}  // namespace assay
