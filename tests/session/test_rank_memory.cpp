// Whether GPUs, machines and cgroups that ranks share have room for them.
#include "cuda/context.h"
#include "session/rank_memory.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("ranks that share a GPU must fit on it together") {
  constexpr size_t kGib = size_t{1} << 30;
  const auto on_gpu = [](int64_t first, size_t gib, size_t free) {
    return RankNeed{.machine = 0,
                    .gpu = first,
                    .host = 0,
                    .machine_bytes = 0,
                    .limit = {},
                    .on_gpu = gib * kGib,
                    .gpu_free = free * kGib + gpu::kTakenLater};
  };
  REQUIRE(!gpu_shortage({on_gpu(0, 6, 10), on_gpu(1, 6, 10)}));
  // Each of them leaves some.
  REQUIRE(gpu_shortage({on_gpu(0, 5, 10), on_gpu(0, 5, 10)}));
  std::vector<RankNeed> fit = {on_gpu(0, 5, 10), on_gpu(0, 5, 10)};
  for (RankNeed& n : fit) n.gpu_free += gpu::kTakenLater;
  REQUIRE(!gpu_shortage(fit));
  fit[1].on_gpu += 1;
  REQUIRE(gpu_shortage(fit));
  // Each would fit alone. The rank that opened the GPU last sees the least.
  const std::optional<Shortage> both = gpu_shortage({on_gpu(0, 6, 11), on_gpu(0, 6, 10)});
  REQUIRE(both);
  REQUIRE(
      both->why ==
      "the 2 ranks on the GPU of rank 0 need 12.0 GiB of memory together, it has 9.8 GiB free for "
      "plans");
  REQUIRE(both->available == 5 * kGib - gpu::kTakenLater / 2);
  const std::optional<Shortage> one = gpu_shortage({on_gpu(0, 6, 10), on_gpu(1, 16, 10)});
  REQUIRE(one);
  REQUIRE(one->why == "rank 1 needs 16.0 GiB of memory, its GPU has 10.0 GiB free for plans");
  REQUIRE(one->available == 10 * kGib);
}

TEST_CASE("ranks must fit together into their machine, and into the limit of their cgroup") {
  constexpr size_t kGib = size_t{1} << 30;
  // A machine of 64 GiB; cgroup 0 has no limit.
  const auto on_host = [](int64_t machine, size_t gib, uint64_t cgroup, size_t limit) {
    return RankNeed{.machine = machine,
                    .gpu = -1,
                    .host = gib * kGib,
                    .machine_bytes = 64 * kGib,
                    .limit = {.bytes = (cgroup == 0 ? 64 : limit) * kGib, .cgroup = cgroup},
                    .on_gpu = 0,
                    .gpu_free = 0};
  };
  const auto why = [](const std::vector<RankNeed>& all) {
    const std::optional<Shortage> shortage = host_shortage(all);
    return shortage ? shortage->why : "";
  };
  REQUIRE(why({on_host(0, 32, 0, 0), on_host(0, 32, 0, 0)}).empty());
  REQUIRE(why({on_host(0, 40, 0, 0), on_host(1, 40, 0, 0)}).empty());
  REQUIRE(why({on_host(0, 1, 0, 0), on_host(1, 40, 0, 0), on_host(1, 40, 0, 0)}) ==
          "the 2 ranks on the machine of rank 1 need 80.0 GiB of memory together, it has 64.0 GiB");
  REQUIRE(why({on_host(0, 65, 0, 0), on_host(1, 1, 0, 0)}) ==
          "rank 0 needs 65.0 GiB of memory, its machine has 64.0 GiB");
  // A job's limit is for all of its ranks on a machine; each container may have its own.
  const std::vector<RankNeed> job = {on_host(0, 5, 7, 8), on_host(0, 5, 7, 8)};
  REQUIRE(why(job) ==
          "the 2 ranks in the cgroup of rank 0 need 10.0 GiB of memory together, its limit is 8.0 "
          "GiB");
  REQUIRE(host_shortage(job)->available == 4 * kGib);
  REQUIRE(why({on_host(0, 5, 7, 8), on_host(1, 5, 7, 8)}).empty());
  REQUIRE(why({on_host(0, 5, 7, 8), on_host(0, 5, 9, 8)}).empty());
  REQUIRE(why({on_host(0, 5, 7, 8), on_host(0, 9, 9, 8)}) ==
          "rank 1 needs 9.0 GiB of memory, the limit of its cgroup is 8.0 GiB");
}

}  // namespace assay
