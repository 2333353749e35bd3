// The configuration of a branch: a run that goes on from a checkpoint of another one, its trunk,
// with a warm-down of its own (`assay branch`, `branches` of a matrix).
//
// Up to the checkpoint a run of this configuration has the trunk's learning rates, and nothing else
// of a step depends on the number of steps: so a branch has the bits of a run of its configuration
// from the first step.
#pragma once

#include <cstdint>

#include "engine/config/config.h"

namespace assay {

struct BranchSteps {
  int64_t step = 0;   // where it leaves the trunk
  int64_t steps = 0;  // its own, those of the trunk included
  int64_t warmdown() const { return steps - step; }
};

// A warm-down of `share` of all steps, rounded up, that begins after `step`.
BranchSteps branch_from(int64_t step, double share);
// The same that ends after `steps`.
BranchSteps branch_to(int64_t steps, double share);
// Share of a run's steps that its warm-down takes; 0 without one.
double warmdown_share(const Config& config);

// trunk: resolved. UserError: inside the trunk's warm-up or warm-down, an end beyond the contract's
// horizon, steps in bf16 (precision.bf16_tail) before the branch begins.
Config branch_config(const Config& trunk, const BranchSteps& branch);

}  // namespace assay
