// Turns what the CUDA run-time library returns into user errors. Private to the files of the device
// layer.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace assay::gpu {

// Throws if `status` is a failure; `doing` completes "CUDA failed while ...".
void cuda_check(cudaError_t status, const std::string& doing);
// A ring of the kernels started last: a failure shows itself only after the call that made it.
void remember_kernel(const char* name);

}  // namespace assay::gpu
