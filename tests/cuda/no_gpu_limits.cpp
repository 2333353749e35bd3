// Stub of the GPU limits for programs that run on the SIMT emulator, which has none worth
// measuring.
#include "machine/gpu_timer.h"

namespace assay {

double copy_limit(gpu::Device&, const DeviceTimer&, GpuReading*) {
  return 0;
}
double matmul_limit(gpu::Device&, const DeviceTimer&, GpuReading*) {
  return 0;
}

}  // namespace assay
