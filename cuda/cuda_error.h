// Turns status codes of the CUDA run-time library into user errors. Private to the files of the
// device layer.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace assay::gpu {

// Throws if `status` is a failure; `doing` completes "CUDA failed while ...".
void cuda_check(cudaError_t status, const std::string& doing);
// What to do about `status`. launched: whether a kernel has been started, which may be what failed.
std::string hint_for(cudaError_t status, bool launched);

}  // namespace assay::gpu
