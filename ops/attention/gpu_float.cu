// Attention in float on the CUDA cores: separates errors of the mathematics from rounding; speed
// does not matter.
//
// A row (a query, or a key in the backward pass over keys) belongs to D / 32 adjacent lanes, 32
// elements each, in registers. All rows of a warp read the rows of the other side together, one
// after another.
#include <cmath>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/attention.h"
#include "ops/attention/gpu_delta.h"
#include "ops/attention/gpu_fragments.h"

namespace assay::gpu {

namespace {

using namespace attention;

constexpr int kThreads = 128;
constexpr int kWidth = 32;  // elements of a row per thread

// The row, and the part of it, that a thread owns.
template <int D>
struct Owner {
  static constexpr int kLanes = D / kWidth;
  static constexpr int kRows = kThreads / kLanes, kWarpRows = kWarp / kLanes;
  int64_t row;       // may be past the sequence
  int64_t warp_row;  // the warp's first row
  int part;

  GPU_DEVICE explicit Owner(int64_t block)
      : row(block * kRows + int(threadIdx.x) / kLanes),
        warp_row(block * kRows + warp() * kWarpRows),
        part(int(threadIdx.x) % kLanes * kWidth) {}
};

GPU_DEVICE void load_part(float (&x)[kWidth], const float* row) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const auto v = load_vec<4>(row + i);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[i + e] = v[e];
  }
}
GPU_DEVICE void store_part(float* row, const float (&x)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    store_vec<4>(row + i, Vec<float, 4>{{x[i], x[i + 1], x[i + 2], x[i + 3]}});
  }
}
// Four partial sums, so that the additions are independent.
template <int D>
GPU_DEVICE float dot(const float (&x)[kWidth], const float* row) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const auto v = load_vec<4>(row + i);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = fmaf(x[i + e], v[e], sum[e]);
  }
  return warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), D / kWidth);
}
GPU_DEVICE void add_scaled(float (&sum)[kWidth], float factor, const float* row) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const auto v = load_vec<4>(row + i);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[i + e] = fmaf(factor, v[e], sum[i + e]);
  }
}

// Turns the sums of a row back by RoPE, if there is a table. Called by all lanes of the warp: for D
// above 32 the other element of a pair is in the lane that is D / 64 away.
template <int D>
GPU_DEVICE void turn_back(float (&x)[kWidth], const AttentionBackward<float>& a,
                          const Owner<D>& own) {
  if (a.cos.empty()) return;
  constexpr int kHalf = D / 2, kApart = Owner<D>::kLanes / 2;
  const int64_t t = smaller(own.row, a.sequence - 1);
  const float *cos = a.cos.row(t), *sin = a.sin.row(t);
  float other[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if constexpr (kApart > 0) {
      other[i] = shuffle_xor(x[i], kApart);
    } else {
      other[i] = x[(i + kHalf) % kWidth];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const int d = own.part + i;
    const float s = sin[d % kHalf];
    x[i] = x[i] * cos[d % kHalf] + other[i] * (d < kHalf ? s : -s);
  }
}

// The lanes of a row own a query. Bound by L1: a key and its value are read for 2 D FMA per row.
template <int D>
__global__ __launch_bounds__(kThreads) void attention_forward_float_kernel(
    const __grid_constant__ AttentionForward<float> a) {
  const int64_t b = blockIdx.x / a.heads, h = blockIdx.x % a.heads;
  const int64_t kv = h / (a.heads / a.kv_heads), stride = a.qkv.dim[1];
  const Owner<D> own(gridDim.y - 1 - blockIdx.y);
  const float* const rows = a.qkv.row(b * a.sequence) + own.part;
  const float* k = rows + (a.heads + kv) * D;
  const float* v = k + a.kv_heads * D;
  const float scale = kLog2E * inverse_root<D>();

  float q[kWidth], out[kWidth] = {};
  load_part(q, rows + smaller(own.row, a.sequence - 1) * stride + h * D);
  float top = -INFINITY, sum = 0;
  const int64_t end = smaller(own.warp_row + Owner<D>::kWarpRows, a.sequence);
  for (int64_t j = 0; j < end; ++j, k += stride, v += stride) {
    const float s = dot<D>(q, k) * scale;
    if (j > own.row) continue;
    if (s > top) {
      const float factor = exp2_approx(top - s);
      top = s;
      sum *= factor;
#pragma unroll
      for (float& x : out) x *= factor;
    }
    const float p = exp2_approx(s - top);
    sum += p;
    add_scaled(out, p, v);
  }
  AmaxAccumulator most{a.amax.data};
  if (own.row < a.sequence) {
    const float inverse = 1.0f / sum;
#pragma unroll
    for (float& x : out) x *= inverse;
    store_part(a.out.row(b * a.sequence + own.row) + h * D + own.part, out);
    most.take(out);
    if (own.part == 0) a.lse.at(b, h, own.row) = (top + log2f(sum)) * kLn2;
  }
  most.raise_of_warp<float>();
}

// The lanes of a row own dk and dv of a key and loop over the queries, of all heads of the group,
// that see it. Bound by L1.
template <int D>
__global__ __launch_bounds__(kThreads) void attention_backward_keys_float_kernel(
    const __grid_constant__ AttentionBackward<float> a) {
  const int64_t b = blockIdx.x / a.kv_heads, kv = blockIdx.x % a.kv_heads;
  const int64_t group = a.heads / a.kv_heads, stride = a.qkv.dim[1];
  const Owner<D> own(blockIdx.y);
  const float* const rows = a.qkv.row(b * a.sequence) + own.part;
  const int64_t k_column = (a.heads + kv) * D, v_column = k_column + a.kv_heads * D;
  const float scale = kLog2E * inverse_root<D>();

  float k[kWidth], v[kWidth], dk[kWidth] = {}, dv[kWidth] = {};
  const int64_t key = smaller(own.row, a.sequence - 1);
  load_part(k, rows + key * stride + k_column);
  load_part(v, rows + key * stride + v_column);
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (int64_t t = own.warp_row; t < a.sequence; ++t) {
      const float* const q = rows + t * stride + h * D;
      const float* const dout = a.dout.row(b * a.sequence + t) + h * D + own.part;
      const int64_t at = (b * a.heads + h) * a.sequence + t;
      const float s = dot<D>(k, q), dp = dot<D>(v, dout);
      if (t < own.row) continue;
      const float p = exp2_approx(fmaf(s, scale, -a.lse[at] * kLog2E));
      add_scaled(dv, p, dout);
      add_scaled(dk, p * (dp - a.scratch[at]), q);
    }
  }
  turn_back<D>(dk, a, own);
#pragma unroll
  for (float& x : dk) x *= inverse_root<D>();
  AmaxAccumulator most_dk{a.dqk_amax.data}, most_dv{a.dv_amax.data};
  if (own.row < a.sequence) {
    float* const to = a.dqkv.row(b * a.sequence + own.row) + own.part;
    store_part(to + k_column, dk);
    store_part(to + v_column, dv);
    most_dk.take(dk);
    most_dv.take(dv);
  }
  most_dk.raise_of_warp<float>();
  most_dv.raise_of_warp<float>();
}

// The lanes of a row own dq of a query. Bound by L1.
template <int D>
__global__ __launch_bounds__(kThreads) void attention_backward_queries_float_kernel(
    const __grid_constant__ AttentionBackward<float> a) {
  const int64_t b = blockIdx.x / a.heads, h = blockIdx.x % a.heads;
  const int64_t kv = h / (a.heads / a.kv_heads), stride = a.qkv.dim[1];
  const Owner<D> own(gridDim.y - 1 - blockIdx.y);
  const float* const rows = a.qkv.row(b * a.sequence) + own.part;
  const float* k = rows + (a.heads + kv) * D;
  const float* v = k + a.kv_heads * D;
  const float scale = kLog2E * inverse_root<D>();

  const int64_t query = smaller(own.row, a.sequence - 1);
  const int64_t at = (b * a.heads + h) * a.sequence + query;
  const float lse = a.lse[at] * kLog2E, delta = a.scratch[at];
  float q[kWidth], dout[kWidth], dq[kWidth] = {};
  load_part(q, rows + query * stride + h * D);
  load_part(dout, a.dout.row(b * a.sequence + query) + h * D + own.part);
  const int64_t end = smaller(own.warp_row + Owner<D>::kWarpRows, a.sequence);
  for (int64_t j = 0; j < end; ++j, k += stride, v += stride) {
    const float s = dot<D>(q, k), dp = dot<D>(dout, v);
    if (j > own.row) continue;
    add_scaled(dq, exp2_approx(fmaf(s, scale, -lse)) * (dp - delta), k);
  }
  turn_back<D>(dq, a, own);
#pragma unroll
  for (float& x : dq) x *= inverse_root<D>();
  AmaxAccumulator most{a.dqk_amax.data};
  if (own.row < a.sequence) {
    store_part(a.dqkv.row(b * a.sequence + own.row) + h * D + own.part, dq);
    most.take(dq);
  }
  most.raise_of_warp<float>();
}

template <int D>
unsigned blocks_of(int64_t sequence) {
  return unsigned(ceil_div(sequence, Owner<D>::kRows));
}

template <int D>
void launch_forward(Exec on, const AttentionForward<float>& a) {
  launch(on,
         {.name = "attention_forward_float",
          .grid = {unsigned(a.batch * a.heads), blocks_of<D>(a.sequence)},
          .block = {kThreads}},
         attention_forward_float_kernel<D>, a);
}

template <int D>
void launch_backward(Exec on, const AttentionBackward<float>& a) {
  launch_attention_delta(on, a);
  launch(on,
         {.name = "attention_backward_keys_float",
          .grid = {unsigned(a.batch * a.kv_heads), blocks_of<D>(a.sequence)},
          .block = {kThreads}},
         attention_backward_keys_float_kernel<D>, a);
  launch(on,
         {.name = "attention_backward_queries_float",
          .grid = {unsigned(a.batch * a.heads), blocks_of<D>(a.sequence)},
          .block = {kThreads}},
         attention_backward_queries_float_kernel<D>, a);
}

}  // namespace

void attention_forward(Exec on, const AttentionForward<float>& a) {
  if (a.out.size() == 0) return;
  if (a.head_dim == 32) return launch_forward<32>(on, a);
  if (a.head_dim == 64) return launch_forward<64>(on, a);
  launch_forward<128>(on, a);
}

void attention_backward(Exec on, const AttentionBackward<float>& a) {
  if (a.dqkv.size() == 0) return;
  if (a.head_dim == 32) return launch_backward<32>(on, a);
  if (a.head_dim == 64) return launch_backward<64>(on, a);
  launch_backward<128>(on, a);
}

}  // namespace assay::gpu
