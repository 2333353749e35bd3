// What a matrix says of the claims in its file: each a measure of one model, compared with a number
// or with the same measure of another model seed by seed. The verdict is that of Student's 95%
// interval over the seeds:
//
//   holds      all of it lies where the claim says
//   fails      none of it does
//   undecided  these seeds do not say, there is one seed, or not every run has the measure
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
  std::string why;                      // where the interval is not the reason: "one seed", ...
  std::optional<Summary> value, other;  // of the two models
  std::optional<Summary>
      compared;         // what the interval is of: the value, or the differences by seed
  int64_t planned = 0;  // seeds
};

// Every claim under every contract and precision, in this order.
std::vector<ClaimResult> evaluate_claims(const std::vector<MatrixClaim>& claims,
                                         const std::vector<ContractTable>& tables);

// Where the 95% interval of `compared` lies.
ClaimVerdict claim_verdict(const MatrixClaim& claim, const Interval& interval);

std::string claims_markdown(const std::vector<ClaimResult>& results);

}  // namespace assay
