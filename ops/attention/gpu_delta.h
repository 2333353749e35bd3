// delta = dout . out: the first kernel of attention backward in float, and in bf16 by mma.sync.
#pragma once

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention.h"

namespace assay::gpu::attention {

inline constexpr int kDeltaThreads = 256;

// scratch (B, Hq, T) = dout . out. D / 8 threads share a row of a head, 8 elements each. Bound by
// memory: dout and out once; one delta is 4 bytes, its rows in bf16 are 4 D.
template <typename T>
__global__ __launch_bounds__(kDeltaThreads) void attention_delta_kernel(
    const __grid_constant__ AttentionBackward<T> a) {
  const int64_t i = int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x;
  const bool inside = i * 8 < a.out.size();
  float sum = 0;
  if (inside) {
    constexpr int kVec = 16 / int(sizeof(T));
#pragma unroll
    for (int v = 0; v < 8; v += kVec) {
      const auto x = load_vec<kVec>(a.dout.data + i * 8 + v);
      const auto y = load_vec<kVec>(a.out.data + i * 8 + v);
#pragma unroll
      for (int e = 0; e < kVec; ++e) sum += float(x[e]) * float(y[e]);
    }
  }
  const int lanes = int(a.head_dim) / 8;
  sum = warp_sum(sum, lanes);
  if (!inside || i % lanes != 0) return;
  const int64_t row = i / lanes, token = row / a.heads, h = row % a.heads;
  a.scratch[(token / a.sequence * a.heads + h) * a.sequence + token % a.sequence] = sum;
}

template <typename T>
void launch_attention_delta(Exec on, const AttentionBackward<T>& a) {
  const int64_t threads = a.out.size() / 8;
  launch(on,
         {.name = "attention_delta",
          .grid = {unsigned(ceil_div(threads, kDeltaThreads))},
          .block = {kDeltaThreads}},
         attention_delta_kernel<T>, a);
}

}  // namespace assay::gpu::attention
