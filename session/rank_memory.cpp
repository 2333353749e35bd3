#include "session/rank_memory.h"

#include <iostream>

#include "comm/agree.h"
#include "cuda/context.h"

namespace assay {

namespace {

constexpr double kGiB = 1 << 30;

struct Need {
  int64_t machine;       // its first rank
  size_t host, there;    // bytes of its memory
  size_t gpu, gpu_free;  // bytes of the rank's GPU
};

Need need_of(const Ranks& ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  const size_t on_gpu = gpu ? plan.bytes_on(gpu) : 0;
  return {.machine = ranks.node(),
          .host = plan.total_bytes() - on_gpu,
          .there = machine_memory_bytes(),
          .gpu = on_gpu,
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

void require_room(Ranks* ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  if (ranks == nullptr) return;
  const std::vector<Need> all = gather(ranks->group(), need_of(*ranks, plan, gpu));
  for (size_t first = 0; first < all.size(); ++first) {
    const Need& n = all[first];
    if (n.gpu > n.gpu_free) {
      refuse(*ranks, plan,
             strprintf("rank %zu needs %.1f GiB of memory, its GPU has %.1f GiB free", first,
                       double(n.gpu) / kGiB, double(n.gpu_free) / kGiB),
             n.gpu_free);
    }
    if (n.machine != int64_t(first)) continue;
    size_t needed = 0, there = n.there, count = 0;
    for (const Need& other : all) {
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
