// What is known of a GPU by its name.
#include <cstdlib>

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

TEST_CASE("a GPU that another process has for itself is refused, by auto too") {
  setenv("SIMT_IN_USE", "1", 1);
  for (const char* const device : {"cuda", "auto"}) {
    if (backend_of(device) == Backend::kCpu) continue;  // a build without images for a GPU
    try {
      choose_device(device);
      FAIL("opened for " << device);
    } catch (const UserError& error) {
      REQUIRE(std::string(error.what()).find("the GPU is in use: another process has it") == 0);
      REQUIRE(error.hint().find("CUDA_VISIBLE_DEVICES") != std::string::npos);
      REQUIRE(error.hint().find("--device cpu") != std::string::npos);
    }
  }
  unsetenv("SIMT_IN_USE");
  if (backend_of("auto") == Backend::kGpu) REQUIRE(choose_device("auto").gpu != nullptr);
}

}  // namespace assay
