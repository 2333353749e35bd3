// Loss difference between a model and a public run, at the steps where both were validated.
#pragma once

#include <vector>

#include "lab/compare/anchor_log.h"
#include "lab/runs/seed_groups.h"

namespace assay {

struct AnchorGap {
  int64_t step = 0;
  double anchor_nats = 0;
  Summary ours;  // over the seeds that were validated there
  Summary gap;   // ours - anchor
};

// Largest common step first.
std::vector<AnchorGap> anchor_gaps(const AnchorLog& anchor, const SeedGroup& group);

}  // namespace assay
