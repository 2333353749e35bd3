// The names of predecessors (cuda/predecessors.h) as a text.
#pragma once

#include <string>

#include "cuda/predecessors.h"

namespace assay::gpu {

// "work_lists,...", or "" if there are none.
std::string names_of(Predecessors predecessors);

}  // namespace assay::gpu
