// The verdict on a claim about a measure that is 0 or 1 in each run: its mean over the seeds is a
// share of the runs, and Student's interval does not fit it. Exact tests decide instead:
//
//   against a number      the binomial test of the number of ones
//   against another model the sign test (McNemar's) on the seeds in which the two differ
//
// It holds or fails where the test has p <= 0.05, and is undecided elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lab/runs/interval_claim.h"

namespace assay {

struct ShareVerdict {
  ClaimVerdict verdict = ClaimVerdict::kUndecided;
  double p = 1;
  // The fewest values, at least those there are, that would decide it if their shares stayed as
  // they are; nullopt if more than kMostValues were needed.
  std::optional<int64_t> needed = {};
};

// Why such a claim has no test: a difference near 0, a bound that no share can be beyond; "" if it
// has one. is_difference: of several terms, not of one model's runs.
std::string untestable_share(ClaimRelation relation, double number, double within,
                             bool is_difference);

// sums: by seed the value, or the difference; not empty. The claim has a test.
ShareVerdict share_verdict(ClaimRelation relation, double number, double within, bool is_difference,
                           std::span<const double> sums);

}  // namespace assay
