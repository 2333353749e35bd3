// Starting a kernel, without the CUDA C++ keywords that kernels need. Ops include cuda/launch.h.
#pragma once

#include <cstdint>

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay::gpu {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  const char* name;          // for error messages; must live as long as the program
  Extent grid;               // y and z at most 65535
  Extent block;              // at most 1024 threads
  int64_t shared_bytes = 0;  // dynamic shared memory
  // Consecutive blocks along x that run together, 1 to 8 (cuda/kernel/cluster.h); divides grid.x.
  uint32_t cluster = 1;
};

// Raises the kernel's limit of shared memory if needed and starts it (cuda/launch.cpp). Errors name
// the kernel.
void launch_kernel(Exec on, const Launch& how, const void* kernel, void** arguments);

}  // namespace assay::gpu
