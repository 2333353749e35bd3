// How a kernel is started, without the words of CUDA C++ that kernels need: cuda/launch.h is what
// ops include.
#pragma once

#include <cstdint>

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay::gpu {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  const char* name;  // in errors and profiles; lives as long as the program
  Extent grid;
  Extent block;
  int64_t shared_bytes = 0;  // dynamic shared memory
};

// cuda/launch.cpp: raises the kernel's limit of shared memory where needed and starts it. A failure
// names the kernel.
void launch_kernel(Exec on, const Launch& how, const void* kernel, void** arguments);

}  // namespace assay::gpu
