// The largest magnitude of what a kernel writes, made by that kernel: an integer maximum of bit patterns, so that the order does not
// matter. The host sets *most to 0 before; every thread of the block calls raise_most once, with its own largest.
#pragma once

#include "cuda/gpu.h"
#include "ops/quantise_scale.h"

namespace assay::gpu {

GPU_DEVICE void take_most(uint32_t& most, float x) {
  const uint32_t bits = magnitude_bits(x);
  most = most < bits ? bits : most;
}

// `scratch`: kWarp words of shared memory.
GPU_DEVICE void raise_most(float* most_of_all, uint32_t most, uint32_t* scratch) {
  most = block_reduce(most, Max{}, 0u, scratch);
  if (threadIdx.x == 0) atomic_max(reinterpret_cast<uint32_t*>(most_of_all), most);
}

}  // namespace assay::gpu
