// Whether GPUs that ranks share have room for them.
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
                    .on_gpu = gib * kGib,
                    .gpu_free = free * kGib};
  };
  REQUIRE(!gpu_shortage({on_gpu(0, 6, 10), on_gpu(1, 6, 10)}));
  REQUIRE(!gpu_shortage({on_gpu(0, 5, 10), on_gpu(0, 5, 10)}));
  // Each would fit alone. The rank that opened the GPU last sees the least.
  const std::optional<Shortage> both = gpu_shortage({on_gpu(0, 6, 11), on_gpu(0, 6, 10)});
  REQUIRE(both);
  REQUIRE(
      both->why ==
      "the 2 ranks on the GPU of rank 0 need 12.0 GiB of memory together, it has 10.0 GiB free");
  REQUIRE(both->available == 5 * kGib);
  const std::optional<Shortage> one = gpu_shortage({on_gpu(0, 6, 10), on_gpu(1, 16, 10)});
  REQUIRE(one);
  REQUIRE(one->why == "rank 1 needs 16.0 GiB of memory, its GPU has 10.0 GiB free");
  REQUIRE(one->available == 10 * kGib);
}

}  // namespace assay
