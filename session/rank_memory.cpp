#include "session/rank_memory.h"

#include <algorithm>
#include <iostream>

#include "base/memory_units.h"
#include "comm/agree.h"
#include "cuda/context.h"

namespace assay {

namespace {

RankNeed need_of(const Ranks& ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  const size_t on_gpu = gpu ? plan.bytes_on(gpu) : 0;
  return {.machine = ranks.node(),
          .gpu = ranks.gpu_rank(),
          .host = plan.total_bytes() - on_gpu,
          .machine_bytes = machine_memory_bytes(),
          .limit = memory_limit(),
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

// How a shortage of some memory is told: "its GPU has", "on the GPU of rank", "it has", " free for
// plans".
struct Words {
  const char *its, *ranks, *it, *end;
};
constexpr Words kGpu{"its GPU has", "on the GPU of rank", "it has", " free for plans"},
    kMachine{"its machine has", "on the machine of rank", "it has", ""},
    kCgroup{"the limit of its cgroup is", "in the cgroup of rank", "its limit is", ""};

// Where `count` ranks, of which `first` is the first one, need more than is there.
std::optional<Shortage> shortage_of(size_t first, size_t count, size_t needed, size_t there,
                                    const Words& words) {
  if (needed <= there) return std::nullopt;
  const double need_gib = in_gib(needed);
  const std::string need =
      count == 1 ? strprintf("rank %zu needs %.1f GiB of memory, %s", first, need_gib, words.its)
                 : strprintf("the %zu ranks %s %zu need %.1f GiB of memory together, %s", count,
                             words.ranks, first, need_gib, words.it);
  return Shortage{need + strprintf(" %.1f GiB%s", in_gib(there), words.end), there / count};
}

// Of the memory that the ranks share which `shares` names, if `first` is the first of them.
template <typename Shares>
std::optional<Shortage> host_shortage_at(const std::vector<RankNeed>& all, size_t first,
                                         size_t there, const Words& words, const Shares& shares) {
  size_t needed = 0, count = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!shares(all[i])) continue;
    if (i < first) return std::nullopt;
    needed += all[i].host;
    count += 1;
  }
  return shortage_of(first, count, needed, there, words);
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
    free -= std::min(free, count * size_t(gpu::kTakenLater));
    if (const auto shortage = shortage_of(first, count, needed, free, kGpu)) return shortage;
  }
  return std::nullopt;
}

std::optional<Shortage> host_shortage(const std::vector<RankNeed>& all) {
  for (size_t first = 0; first < all.size(); ++first) {
    const RankNeed& n = all[first];
    const auto shortage =
        host_shortage_at(all, first, n.machine_bytes, kMachine,
                         [&](const RankNeed& other) { return other.machine == n.machine; });
    if (shortage) return shortage;
  }
  for (size_t first = 0; first < all.size(); ++first) {
    const RankNeed& n = all[first];
    if (n.limit.cgroup == 0) continue;
    const auto shortage =
        host_shortage_at(all, first, n.limit.bytes, kCgroup, [&](const RankNeed& other) {
          return other.machine == n.machine && other.limit.cgroup == n.limit.cgroup;
        });
    if (shortage) return shortage;
  }
  return std::nullopt;
}

void require_room(Ranks* ranks, const MemoryPlan& plan, const gpu::Context* gpu) {
  if (ranks == nullptr) return;
  const std::vector<RankNeed> all = gather(ranks->group(), need_of(*ranks, plan, gpu));
  if (const std::optional<Shortage> shortage = gpu_shortage(all)) {
    refuse(*ranks, plan, shortage->why, shortage->available);
  }
  if (const std::optional<Shortage> shortage = host_shortage(all)) {
    // A GPU's micro-batch is not what is short.
    if (gpu != nullptr) throw UserError(shortage->why, kHint);
    refuse(*ranks, plan, shortage->why, shortage->available);
  }
}

}  // namespace assay
