// The CUDA C++ keywords that kernels use, for a host compiler. No header of the CUDA toolkit is
// needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt/source_location.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Those of the running thread; threadIdx is set at every switch of threads.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

#define GPU_DEVICE inline

// GPU_SHARED(float, red, [32]);   per block, filled with 0xFF, followed by a gap. An empty extent
// declares one element.
#define GPU_SHARED(T, name, extent)                                          \
  typedef T gpu_shared_type_of_##name extent;                                \
  static constinit ::assay::simt::SharedKey gpu_shared_key_of_##name{#name}; \
  gpu_shared_type_of_##name& name =                                          \
      *static_cast<gpu_shared_type_of_##name*>(::assay::simt::shared_array(  \
          gpu_shared_key_of_##name, sizeof(gpu_shared_type_of_##name),       \
          alignof(gpu_shared_type_of_##name), ::assay::simt::SourceLocation{__FILE__, __LINE__}))

// GPU_DYNAMIC_SHARED(bf16, tile);   the launch's shared_bytes, aligned to 1024
#define GPU_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::assay::simt::dynamic_shared())

namespace assay::simt {

// One GPU_SHARED declaration: its array in the running block.
struct SharedKey {
  const char* name;
  uint64_t block = 0;  // serial number of the block that `array` belongs to
  void* array = nullptr;
};
void* shared_array(SharedKey& key, size_t bytes, size_t alignment, SourceLocation here);
void* dynamic_shared();

}  // namespace assay::simt
