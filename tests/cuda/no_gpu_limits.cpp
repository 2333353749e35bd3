// Stub of the GPU limits for programs that run on the SIMT emulator, which has none worth
// measuring. ASSAY_FAKE_FULL_GPU=1: there is no memory left to measure with.
#include <cstdlib>

#include "cuda/device.h"
#include "machine/gpu_timer.h"

namespace assay {

double copy_limit(gpu::Device&, const DeviceTimer&, GpuReading*) {
  return 0;
}
double matmul_limit(gpu::Device&, const DeviceTimer&, GpuReading*) {
  if (std::getenv("ASSAY_FAKE_FULL_GPU") != nullptr) {
    throw gpu::out_of_gpu_memory(size_t{1} << 30, int64_t{1} << 28);
  }
  return 0;
}

}  // namespace assay
