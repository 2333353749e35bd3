// Keeps several loads of a loop in flight. A compiler may not move a load above a store to possibly
// the same memory, so a plain loop that copies from global to shared memory waits for each load.
#pragma once

#include <type_traits>

#include "cuda/gpu.h"

namespace assay::gpu {

// Calls use(i, load(i)) for i = first, first + stride, ... < end, N loads at a time.
template <int N, typename Index, typename Load, typename Use>
GPU_DEVICE void in_batches(Index first, Index end, int stride, Load&& load, Use&& use) {
  for (Index i = first; i < end; i += N * stride) {
    std::remove_cvref_t<decltype(load(i))> value[N] = {};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n * stride < end) value[n] = load(i + n * stride);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n * stride < end) use(i + n * stride, value[n]);
    }
  }
}

}  // namespace assay::gpu
