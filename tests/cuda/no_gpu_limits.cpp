// Stub of the GPU limits for programs that run on the SIMT emulator, which has none worth
// measuring: each is 1e12 for a second of heat. ASSAY_FAKE_FULL_GPU=1: there is no memory left to
// measure with.
#include <cstdlib>

#include "cuda/device.h"
#include "machine/gpu_timer.h"

namespace assay {

GpuLimit copy_limit(gpu::Device&, const DeviceTimer& timer) {
  return {.p50 = 1e12 * timer.heat_s()};
}
GpuLimit matmul_limit(gpu::Device&, const DeviceTimer& timer) {
  if (std::getenv("ASSAY_FAKE_FULL_GPU") != nullptr) {
    throw gpu::out_of_gpu_memory(size_t{1} << 30, int64_t{1} << 28);
  }
  return {.p50 = 1e12 * timer.heat_s()};
}

}  // namespace assay
