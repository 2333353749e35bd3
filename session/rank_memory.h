// Whether what the ranks have planned fits into their machines and GPUs, before they allocate it.
#pragma once

#include "cuda/memory_plan.h"
#include "session/ranks.h"

namespace assay {

// Collective, with the plan of every rank. Where the ranks of one machine together need more memory
// than it has, or one rank more than its GPU has free, all throw one NotEnoughMemory, and the first
// rank prints its plan on stderr. ranks may be null: then MemoryPlan::allocate() finds out.
void require_room(Ranks* ranks, const MemoryPlan& plan, const gpu::Context* gpu);

}  // namespace assay
