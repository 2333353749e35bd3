// Whether the seeds of a model saw the training data in one order: their spread is then that of the
// initial weights and of the optimizer's draws alone.
#pragma once

#include <span>
#include <string>

#include "lab/runs/seed_groups.h"

namespace assay {

// "all seeds of dense, moe saw the training data in one order (data.shuffle: false), so ...", of
// the groups with more than one run for which that is so, each name once; "" if there are none. Of
// a mixture it says "each source's sequences": the n-th sequence drawn from a source is the same
// for all seeds, which only shuffle those of a step and may draw one more or less from a source.
std::string shared_order_text(std::span<const SeedGroup> groups);

}  // namespace assay
