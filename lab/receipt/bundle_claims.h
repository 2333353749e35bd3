// Claims of a matrix: rules of lab/receipt/run_claims.h applied to its runs, and statistics over
// them (lab/runs/statistics.h).
//
//   {"rule": "run", "run": "moe-seed-1", "of": RULE}             the value of one run
//   {"rule": "mean", "of": RULE, "runs": [...]}                  or sd, interval95_low,
//                                                                interval95_high
//   {"rule": "mean", "of": RULE, "runs": [...], "minus": [...]}  the same of paired differences
//   {"rule": "mean", "terms": [{"sign": 1, "of": RULE, "runs": [...]}, ...]}
//                                                                of sums: run by run the values of
//                                                                the terms, added or subtracted
//   {"rule": "verdict", "relation": "below", "number": 0, "within": 0, "terms": [...]}
//                                                                holds, fails or undecided, of the
//                                                                interval of these sums, or their
//                                                                exact test
//
// Runs are named by their folders, from the receipt's folder. A statistic is null if one of its
// values is null; sd and interval are null for a single run.
//
// "version": 3 of an interval or a verdict is by lab/runs/statistics.h as it is: widened by the
// resolution of the values, null and undecided where a few are all equal. A share of the runs
// (`collapsed`) has no interval, and its verdict is that of lab/runs/share_claim.h; the verdict on
// losses of runs that stopped at their target is undecided. Version 2 knew neither of these two,
// nor that first_saturation has a resolution. Receipts without a version were made before that, and
// are recomputed by Student's interval alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/receipt/run_claims.h"
#include "lab/runs/interval_claim.h"

namespace assay {

class BundleEvidence {
 public:
  explicit BundleEvidence(std::string folder) : folder_(std::move(folder)) {}

  void add(const std::string& run, int64_t sealed_step);
  RunEvidence& run(const std::string& run);  // UserError for a run that was not added

 private:
  std::string folder_;
  std::map<std::string, RunEvidence> runs_;
};

ReceiptJson recompute(BundleEvidence& bundle, const ReceiptJson& how);

// statistic: mean, sd, interval95_low or interval95_high. minus: empty, or one run per element of
// `runs`, in the same order of seeds.
ReceiptJson how_over_runs(const std::string& statistic, const ReceiptJson& of,
                          const std::vector<std::string>& runs,
                          const std::vector<std::string>& minus = {});

struct ReceiptTerm {
  double sign = 1;
  ReceiptJson of;
  std::vector<std::string> runs;  // of the same seeds in every term
};
ReceiptJson how_over_terms(const std::string& statistic, const std::vector<ReceiptTerm>& terms);
ReceiptJson how_verdict(ClaimRelation relation, double number, double within,
                        const std::vector<ReceiptTerm>& terms);

// The largest difference of a rule's value between builds of this program: 0 for counts and values
// that are only read; sums and quantiles in double round in the order the compiler chose.
double rule_tolerance(const ReceiptJson& how, const ReceiptJson& value);

// The verdict by the present version of the rule, where the receipt's is an older one and has
// another; "" otherwise.
std::string verdict_by_present_rule(BundleEvidence& bundle, const ReceiptJson& how);

}  // namespace assay
