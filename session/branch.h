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
  std::string folder;        // of the branch; "": TRUNK-branch-STEPS
  std::optional<double> at;  // share of the trunk's horizon; or
  std::optional<int64_t> at_step;
  std::optional<double> warmdown;  // share of the branch's steps; or
  std::optional<int64_t> warmdown_steps;
};

struct Branch {
  std::string trunk, checkpoint, folder;
  bool begun = false;  // the folder has this branch already; its checkpoint may be gone
  BranchSteps at;
  int64_t horizon = 0;  // of the trunk's contract
  Config config;        // resolved
};

// UserError: no run, no checkpoint at that step (the hint lists them) and no branch of it in the
// folder, or as branch_config().
Branch plan_branch(const BranchRequest& request);

// The folder of the branch, as of a run that was interrupted at the checkpoint: telemetry, samples
// and evaluations up to it, the checkpoint (linked where the file system can), configuration and
// origin. Complete or not there; one that has begun is left as it is. UserError if the folder holds
// anything else.
void make_branch(const Branch& branch);

}  // namespace assay
