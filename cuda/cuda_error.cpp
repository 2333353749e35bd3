#include "cuda/cuda_error.h"

#include "base/check.h"
#include "cuda/device.h"
#include "cuda/recent_kernels.h"
#include "cuda/stuck_wait.h"

namespace assay::gpu {

void cuda_check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  throw UserError(strprintf("CUDA failed while %s: %s (%s); latest launches, newest first: %s%s",
                            doing.c_str(), cudaGetErrorString(status), cudaGetErrorName(status),
                            recent_kernels().c_str(), stuck_wait_text(stuck_wait()).c_str()),
                  hint_for(status, launched_any()));
}

std::string hint_for(cudaError_t status, bool launched) {
  if (status == cudaErrorMemoryAllocation) return kFullGpuHint;
  if (!launched) {
    return "nvidia-smi shows the GPU's state and who uses it; --device cpu works meanwhile";
  }
  return "set ASSAY_SYNC_LAUNCHES=1 to wait for each kernel and name the one that fails; --device "
         "cpu works meanwhile";
}

}  // namespace assay::gpu
