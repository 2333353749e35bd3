// Attention backward by wgmma: the terms of the queries, then the kernels for dk and dv and for dq.
#include "base/math.h"
#include "cuda/launch.h"
#include "ops/attention/gpu_backward_tiles.h"
#include "ops/attention/gpu_backward_wgmma.h"

namespace assay::gpu {

namespace {

using namespace backward_wgmma;

int64_t padded(int64_t sequence) {
  return round_up(sequence, kRows);
}

constexpr int kTermThreads = 256, kTermLanes = kD / 8;

// Computes the terms. D / 8 threads share a row of a head, 8 elements each. Bound by memory: dout
// and out once.
__global__ __launch_bounds__(kTermThreads) void attention_terms_kernel(
    const __grid_constant__ TermsArgs w) {
  const AttentionBackward<bf16>& a = w.a;
  const int64_t row = (int64_t{blockIdx.x} * kTermThreads + threadIdx.x) / kTermLanes;
  const int64_t h = row % a.heads, t = row / a.heads % w.padded, b = row / a.heads / w.padded;
  const bool inside = b < a.batch && t < a.sequence;
  float sum = 0;
  if (inside) {
    const int64_t at = ((b * a.sequence + t) * a.heads + h) * kD + threadIdx.x % kTermLanes * 8;
    const auto x = load_vec<8>(a.dout.data + at), y = load_vec<8>(a.out.data + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += float(x[e]) * float(y[e]);
  }
  sum = warp_sum(sum, kTermLanes);
  if (b >= a.batch || threadIdx.x % kTermLanes != 0) return;
  float* const to = a.scratch.data + term_index((b * a.heads + h) * w.padded + t);
  to[0] = inside ? a.lse.at(b, h, t) * kLog2E : INFINITY;
  to[kRows] = sum;
}

// Three dimensions, so that rows past a sequence are zero and not those of the next sequence.
TensorMap rows_map(const char* name, const View<const bf16, 2>& x,
                   const AttentionBackward<bf16>& a) {
  const int64_t row_bytes = x.dim[1] * int64_t(sizeof(bf16));
  return make_tensor_map({.name = name,
                          .base = x.data,
                          .rank = 3,
                          .dim = {x.dim[1], a.sequence, a.batch},
                          .stride_bytes = {row_bytes, a.sequence * row_bytes},
                          .box = {kD, kRows, 1},
                          .swizzle = Swizzle::k128});
}

}  // namespace

void attention_backward_wgmma(Exec on, const AttentionBackward<bf16>& a) {
  const TermsArgs w{a, padded(a.sequence)};
  const Maps maps{rows_map("attention_backward qkv", a.qkv, a),
                  rows_map("attention_backward dout", a.dout, a)};
  const int64_t threads = a.batch * w.padded * a.heads * kTermLanes;
  launch(on,
         {.name = "attention_terms",
          .grid = {unsigned(ceil_div(threads, kTermThreads))},
          .block = {kTermThreads}},
         attention_terms_kernel, w);

  launch_keys(on, w, maps);
  launch_queries(on, w, maps);
}

}  // namespace assay::gpu
