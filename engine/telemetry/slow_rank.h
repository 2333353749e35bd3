// Which rank the others wait for. Ranks meet in every call of a group, so their steps take equally
// long, whoever is slow; they differ in how much of a step is waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/telemetry/reader.h"

namespace assay {

struct SlowRank {
  int64_t rank = 0;
  double share = 0;   // of a step, in which the others wait for it
  int64_t steps = 0;  // logged steps of which it is the median
};

// The rank that waits least, if at least half of the others wait more than kSlowRankShare of a step
// longer. A rank's share of waiting is its median over the rows; `share` is the median of the
// others' shares less its own, since all of them move bytes. Nullopt if there is no such rank, or
// no rows of two ranks.
inline constexpr double kSlowRankShare = 0.1;
std::optional<SlowRank> slow_rank(std::span<const RankStepRow> rows);

}  // namespace assay
