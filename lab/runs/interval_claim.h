// The verdict on a claim about a mean: it follows from Student's 95% interval over the seeds.
//
//   holds      the whole interval satisfies the claim
//   fails      no part of it does
//   undecided  a part of it does
#pragma once

#include <string>

#include "lab/runs/statistics.h"

namespace assay {

enum class ClaimRelation { kBelow, kAbove, kNear };
const char* claim_relation_name(ClaimRelation relation);  // "below", "above", "near"
// UserError for another name.
ClaimRelation claim_relation_named(const std::string& name);

enum class ClaimVerdict { kHolds, kFails, kUndecided, kNoRun };
const char* claim_verdict_name(ClaimVerdict verdict);  // "holds", ..., "no run"

// within: the distance of kNear.
ClaimVerdict claim_verdict(ClaimRelation relation, double number, double within,
                           const Interval& interval);

}  // namespace assay
