// Whether what the ranks have planned fits into their machines and GPUs, before they allocate it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/memory_limit.h"
#include "cuda/memory_plan.h"
#include "session/ranks.h"

namespace assay {

// Collective, with the plan of every rank. Where the ranks of one machine or cgroup together need
// more memory than it has, or those of one GPU more than it has free, all throw one
// NotEnoughMemory, and the first rank prints its plan on stderr. ranks may be null: then
// MemoryPlan::allocate() finds out.
void require_room(Ranks* ranks, const MemoryPlan& plan, const gpu::Context* gpu);

// What a rank needs, and what there is where it runs.
struct RankNeed {
  int64_t machine, gpu;        // the first ranks there
  size_t host, machine_bytes;  // bytes of the machine's memory
  MemoryLimit limit;           // of the machine, or less
  size_t on_gpu, gpu_free;     // bytes of the GPU's, of which each rank leaves gpu::kTakenLater
};
struct Shortage {
  std::string why;
  size_t available;  // bytes for each of the ranks that share
};
// Of the first GPU whose ranks need more than it has free together. all: in the order of ranks.
std::optional<Shortage> gpu_shortage(const std::vector<RankNeed>& all);
// Of the first machine whose ranks need more than it has, else of the first cgroup.
std::optional<Shortage> host_shortage(const std::vector<RankNeed>& all);

}  // namespace assay
