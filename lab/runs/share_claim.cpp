#include "lab/runs/share_claim.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace assay {
namespace {

constexpr double kDecides = 0.05;

// Of n values those above 0, and those below.
struct ShareTally {
  int64_t n = 0, above = 0, below = 0;
};

// The shares that a claim about a number wants; absent where 0 or 1 is the bound anyway.
struct WantedShares {
  std::optional<double> low, high;
  bool is_testable() const {
    return (low || high) && low.value_or(0.5) < 1 && high.value_or(0.5) > 0;
  }
};

WantedShares wanted_shares(ClaimRelation relation, double number, double within) {
  WantedShares wanted;
  if (relation != ClaimRelation::kBelow) wanted.low = number - within;
  if (relation != ClaimRelation::kAbove) wanted.high = number + within;
  if (wanted.low && *wanted.low <= 0) wanted.low.reset();
  if (wanted.high && *wanted.high >= 1) wanted.high.reset();
  return wanted;
}

ShareVerdict verdict_on_difference(ClaimRelation relation, const ShareTally& tally) {
  ShareVerdict v;
  v.p = binomial_p(tally.above, tally.above + tally.below, 0.5);
  if (v.p > kDecides) return v;
  const bool is_above = tally.above > tally.below;
  v.verdict =
      is_above == (relation == ClaimRelation::kAbove) ? ClaimVerdict::kHolds : ClaimVerdict::kFails;
  return v;
}

ShareVerdict verdict_on_number(const WantedShares& wanted, const ShareTally& tally) {
  const double share = double(tally.above) / double(tally.n);
  const bool too_low = wanted.low && share <= *wanted.low;
  const bool too_high = wanted.high && share >= *wanted.high;
  const auto p = [&](double bound) { return binomial_p(tally.above, tally.n, bound); };
  ShareVerdict v;
  v.p = 0;
  if (wanted.low && !too_high) v.p = p(*wanted.low);
  if (wanted.high && !too_low) v.p = std::max(v.p, p(*wanted.high));
  if (v.p <= kDecides) {
    v.verdict = too_low || too_high ? ClaimVerdict::kFails : ClaimVerdict::kHolds;
  }
  return v;
}

// The same shares of another number of values.
ShareTally at_number(const ShareTally& tally, int64_t n) {
  const auto part = [&](int64_t count) {
    return int64_t(std::llround(double(count) * double(n) / double(tally.n)));
  };
  return {.n = n, .above = part(tally.above), .below = part(tally.below)};
}

}  // namespace

std::string untestable_share(ClaimRelation relation, double number, double within,
                             bool is_difference) {
  if (!is_difference) {
    return wanted_shares(relation, number, within).is_testable()
               ? ""
               : "a share of the runs is tested against a bound between 0 and 1";
  }
  if (relation == ClaimRelation::kNear) {
    return "the sign test tells shares apart, it cannot show them to be near";
  }
  return number == 0 ? "" : "the sign test is of a difference above or below 0";
}

ShareVerdict share_verdict(ClaimRelation relation, double number, double within, bool is_difference,
                           std::span<const double> sums) {
  CHECK(!sums.empty(), "a share of no values");
  ShareTally tally{.n = int64_t(sums.size())};
  for (const double sum : sums) {
    tally.above += sum > 0.5;
    tally.below += sum < -0.5;
  }
  const WantedShares wanted = wanted_shares(relation, number, within);
  const auto verdict_at = [&](int64_t n) {
    const ShareTally scaled = at_number(tally, n);
    return is_difference ? verdict_on_difference(relation, scaled)
                         : verdict_on_number(wanted, scaled);
  };
  ShareVerdict v = verdict_at(tally.n);
  for (int64_t n = tally.n; n <= kMostValues && !v.needed; ++n) {
    if (verdict_at(n).verdict != ClaimVerdict::kUndecided) v.needed = n;
  }
  return v;
}

}  // namespace assay
