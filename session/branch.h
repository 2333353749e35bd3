// Makes the folder of a branch (models/audit/branch.h) from the run that is its trunk, for `assay
// branch`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/audit/branch.h"

namespace assay {

struct BranchRequest {
  std::string trunk;         // the run
  std::optional<double> at;  // share of the trunk's horizon; or
  std::optional<int64_t> at_step;
  std::optional<double> warmdown;  // share of the branch's steps; or
  std::optional<int64_t> warmdown_steps;
};

struct Branch {
  std::string trunk, checkpoint;  // folders
  BranchSteps at;
  int64_t horizon = 0;  // of the trunk's contract
  Config config;        // resolved
};

// UserError: no run, no checkpoint at that step (the hint lists them), or as branch_config().
Branch plan_branch(const BranchRequest& request);

// The folder of the branch, as of a run that was interrupted at the checkpoint: telemetry up to it,
// the checkpoint (linked where the file system can), configuration and origin. Complete or not
// there; an existing folder is left as it is if it is this branch. UserError if it is anything
// else.
void make_branch(const Branch& branch, const std::string& folder);

}  // namespace assay
