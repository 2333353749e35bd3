// The end of a kernel that waits at an mbarrier for longer than ASSAY_GPU_WAIT_LIMIT_S.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernel/language.h"
#include "cuda/stuck_wait.h"

namespace assay::gpu {

static __device__ uint64_t* stuck_wait_place = nullptr;
static const StuckWaitFile stuck_wait_file([](uint64_t* place) {
  cudaMemcpyToSymbol(stuck_wait_place, &place, sizeof place);
});

// In units of 2^30 ns, which take one register.
GPU_DEVICE uint32_t seconds_now() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
  return uint32_t(nanoseconds >> 30);
}

GPU_DEVICE void end_stuck_wait(uint32_t barrier, uint32_t parity) {
  const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  volatile uint64_t* const place = stuck_wait_place;
  if (place != nullptr) *place = packed({block, threadIdx.x, barrier, parity});
  __threadfence_system();
  __trap();
}

}  // namespace assay::gpu
