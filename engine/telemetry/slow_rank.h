// Which rank the others wait for. Ranks meet in every call of a group, so their steps take equally
// long, whoever is slow; they differ in how much of a step is waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

// A rank over several logged steps: medians, except for the largest resident memory.
struct RankMedians {
  int64_t rank = 0;
  int64_t steps = 0;
  double wait_share = 0;  // of a step
  RankStep of;
};

// By rank. Rows without a duration of the step are left out.
std::vector<RankMedians> rank_medians(std::span<const RankStepRow> rows);

struct SlowRank {
  int64_t rank = 0;
  double share = 0;   // of a step, in which the others wait for it
  int64_t steps = 0;  // logged steps of which it is the median
};

// The rank that waits least, if at least half of the others wait more than kSlowRankShare of a step
// longer. `share` is the median of the others' wait_share less its own, since all of them move
// bytes. Nullopt if there is no such rank, no rows of two ranks, or a rank with fewer than
// kSlowRankSteps: one step that a rank happened to come late to says nothing.
inline constexpr double kSlowRankShare = 0.1;
inline constexpr int64_t kSlowRankSteps = 5;
std::optional<SlowRank> slow_rank(std::span<const RankMedians> ranks);

}  // namespace assay
