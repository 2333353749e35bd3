// Whether the seeds of a model saw the training data in one order: their spread is then that of the
// initial weights and of the optimizer's draws alone.
#pragma once

#include <span>
#include <string>

#include "lab/runs/seed_groups.h"

namespace assay {

// "all seeds of dense, moe saw the training data in one order (data.shuffle: false), so ...", of
// the groups with more than one run for which that is so, each name once; "" if there are none. A
// mixture of sources is drawn by the seed, so it has another order for each.
std::string shared_order_text(std::span<const SeedGroup> groups);

}  // namespace assay
