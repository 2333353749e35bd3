// Turns status codes of the CUDA run-time library into user errors. Private to the files of the
// device layer.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace assay::gpu {

// Throws if `status` is a failure; `doing` completes "CUDA failed while ...".
void cuda_check(cudaError_t status, const std::string& doing);
// Remembers the latest launches for error messages, as a kernel's failure shows only in a later
// call. `name` must live as long as the program.
void remember_kernel(const char* name);

}  // namespace assay::gpu
