// What is known of a GPU by its name.
#include "session/session_device.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("a GPU's peak is known by its name, that of an instance of a divided one is not") {
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA H100 80GB HBM3") == 989e12);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA H100 PCIe") == 756e12);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA H200") == 989e12);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA H200 NVL") == 835e12);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA GH200 480GB") == 989e12);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA GeForce RTX 4090") == 0);
  REQUIRE(peak_flop_per_s_of_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb") == 0);
}

}  // namespace assay
