#include "lab/runs/interval_claim.h"

#include <array>

#include "base/check.h"

namespace assay {
namespace {

constexpr std::array<const char*, 3> kRelations = {"below", "above", "near"};

}  // namespace

const char* claim_relation_name(ClaimRelation relation) {
  return kRelations.at(size_t(relation));
}

ClaimRelation claim_relation_named(const std::string& name) {
  for (size_t i = 0; i < kRelations.size(); ++i) {
    if (name == kRelations.at(i)) return ClaimRelation(i);
  }
  throw UserError("a claim's relation is " + name, "below, above or near");
}

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

ClaimVerdict claim_verdict(ClaimRelation relation, double number, double within,
                           const Interval& interval) {
  const auto of = [](bool holds, bool fails) {
    return holds ? ClaimVerdict::kHolds : fails ? ClaimVerdict::kFails : ClaimVerdict::kUndecided;
  };
  if (relation == ClaimRelation::kBelow) return of(interval.high < number, interval.low >= number);
  if (relation == ClaimRelation::kAbove) return of(interval.low > number, interval.high <= number);
  const Interval wanted{.low = number - within, .high = number + within};
  return of(wanted.low <= interval.low && interval.high <= wanted.high, !wanted.overlaps(interval));
}

}  // namespace assay
