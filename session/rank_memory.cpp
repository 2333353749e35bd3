#include "session/rank_memory.h"

#include <algorithm>
#include <iostream>

#include "comm/agree.h"
#include "cuda/context.h"

namespace assay {

namespace {

constexpr double kGiB = 1 << 30;

RankNeed need_of(const Ranks& ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  const size_t on_gpu = gpu ? plan.bytes_on(gpu) : 0;
  return {.machine = ranks.node(),
          .gpu = ranks.gpu_rank(),
          .host = plan.total_bytes() - on_gpu,
          .machine_bytes = machine_memory_bytes(),
          .on_gpu = on_gpu,
          .gpu_free = gpu ? size_t(gpu->memory->available()) : 0};
}

constexpr const char* kHint =
    "reduce run.micro_batch or the model, or start fewer ranks on a machine";

[[noreturn]] void refuse(const Ranks& ranks, const MemoryPlan& plan, const std::string& why,
                         size_t available) {
  if (ranks.first()) plan.print(std::cerr);
  throw NotEnoughMemory(why, kHint, available);
}

}  // namespace

std::optional<Shortage> gpu_shortage(const std::vector<RankNeed>& all) {
  for (size_t first = 0; first < all.size(); ++first) {
    if (all[first].gpu != int64_t(first)) continue;
    size_t needed = 0, free = all[first].gpu_free, count = 0;
    for (const RankNeed& n : all) {
      if (n.gpu != int64_t(first)) continue;
      needed += n.on_gpu;
      free = std::min(free, n.gpu_free);
      count += 1;
    }
    if (needed <= free) continue;
    const double need_gib = double(needed) / kGiB, free_gib = double(free) / kGiB;
    if (count == 1) {
      return Shortage{strprintf("rank %zu needs %.1f GiB of memory, its GPU has %.1f GiB free",
                                first, need_gib, free_gib),
                      free};
    }
    return Shortage{strprintf("the %zu ranks on the GPU of rank %zu need %.1f GiB of memory "
                              "together, it has %.1f GiB free",
                              count, first, need_gib, free_gib),
                    free / count};
  }
  return std::nullopt;
}

void require_room(Ranks* ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  if (ranks == nullptr) return;
  const std::vector<RankNeed> all = gather(ranks->group(), need_of(*ranks, plan, gpu));
  if (const std::optional<Shortage> shortage = gpu_shortage(all)) {
    refuse(*ranks, plan, shortage->why, shortage->available);
  }
  for (size_t first = 0; first < all.size(); ++first) {
    const RankNeed& n = all[first];
    if (n.machine != int64_t(first)) continue;
    size_t needed = 0, there = n.machine_bytes, count = 0;
    for (const RankNeed& other : all) {
      if (other.machine != n.machine) continue;
      needed += other.host;
      count += 1;
    }
    if (needed <= there) continue;
    const std::string why = strprintf(
        "the %zu ranks on the machine of rank %zu need %.1f GiB of memory together, it has %.1f "
        "GiB",
        count, first, double(needed) / kGiB, double(there) / kGiB);
    if (gpu != nullptr) throw UserError(why, kHint);  // a GPU's micro-batch is not what is short
    refuse(*ranks, plan, why, there / count);
  }
}

}  // namespace assay
