// The CUDA C++ keywords that kernels use, for both compilers: __global__, __device__, threadIdx,
// blockIdx, blockDim, gridDim come from nvcc or from cuda/simt/language.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/view.h"

#if defined(__CUDACC__)

#define GPU_DEVICE __device__ __forceinline__
// GPU_SHARED(float, red, [32]);   aligned to 16 bytes, for accesses as wide as those
#define GPU_SHARED(T, name, extent) __shared__ __align__(16) T name extent
// GPU_DYNAMIC_SHARED(bf16, tile);   once per kernel; aligned to 1024 bytes for 128-byte swizzles
#define GPU_DYNAMIC_SHARED(T, name)                                     \
  extern __shared__ __align__(1024) unsigned char gpu_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(gpu_dynamic_shared)

#else

#include "cuda/simt/language.h"

#endif
