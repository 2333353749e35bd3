// Families by construction, for `assay match --experts`, --shared, --depths and --horizons.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct LadderRequest {
  std::string like;  // the base's file
  std::vector<std::string> sets;
  std::vector<int64_t> experts, shared, depths, horizons;
  std::string contract;            // "", total, active or flops
  bool keep_branch_scale = false;  // of experts: by gate_scale
  int64_t multiple = 8;
  std::string folder;  // to write presets and a matrix to; "" = only print
  bool force = false, json = false;
};

// Prints the rungs with their residuals and, with `folder`, writes them. UserError: what does not
// divide, files that are there already without `force`.
int match_ladder(const LadderRequest& request);

}  // namespace assay
