// The limits of a GPU for programs whose GPU is the executor: it has none worth measuring.
#include "machine/gpu_timer.h"

namespace assay {

double copy_limit(gpu::Device&, const DeviceTimer&) {
  return 0;
}
double matmul_limit(gpu::Device&, const DeviceTimer&) {
  return 0;
}

}  // namespace assay
