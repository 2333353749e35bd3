// A value of a run at a share of its planned steps, read from its evaluations: that of the one less
// than a step away (whole steps meet a share only nearly), else between its two neighbours, linear
// in the logarithm of the step, if they are not too far apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

// Between two evaluations of which the later is at most a quarter later a value is read. A chord
// lies above a convex curve in every seed, so that no interval shows it: where the loss falls to
// its limit as steps^-1/2, by 0.0016 of what is left, at twice as late by 0.015.
constexpr double kFarthestApart = 1.25;

// The steps of the evaluations that a value at `wanted` steps is read from, one of them twice if it
// is less than a step away. nullopt where there are none. steps: ascending; 0, the weights as they
// were drawn, is left out.
struct StepsRead {
  int64_t before = 0, after = 0;
  bool interpolated() const { return before != after; }
};
std::optional<StepsRead> steps_read(std::span<const int64_t> steps, double wanted);

struct ValueAtShare {
  double value = 0;
  bool interpolated = false;
};
// values: of one metric of the run, by step. nullopt also where one that it is read from was not
// finite.
std::optional<ValueAtShare> value_at_share(const RunRecord& run,
                                           const std::vector<EvalValue>& values, double share);

}  // namespace assay
