#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/qk_norm.h"

namespace assay::gpu {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kElements = 8;       // elements of a head per lane
constexpr int kRowsPerBlock = 64;  // rows per partial weight gradient: qk_norm_backward_blocks()
constexpr int kWidest = kWarp * kElements;  // largest head width
constexpr int kForwardItems = 4;            // heads per group of lanes, processed one after another

// Layout of a head of width D in the kLanes lanes that own it. kVectors: lane l has elements 8 l to
// 8 l + 7, D = 8 kLanes. Otherwise (kLanes = 32): lane l has elements l, l + 32, ... below D.
template <int kLanes, int kVectors>
struct Head {
  int my_lane, width;

  GPU_DEVICE int column(int e) const {
    return kVectors ? my_lane * kElements + e : my_lane + e * kLanes;
  }
  template <typename T>
  GPU_DEVICE void load(float (&x)[kElements], const T* head) const {
    if constexpr (kVectors) {
      load_floats(x, head + column(0));
    } else {
      for (int e = 0; e < kElements; ++e) x[e] = column(e) < width ? float(head[column(e)]) : 0.0f;
    }
  }
  template <typename T>
  GPU_DEVICE void store(T* head, const float (&x)[kElements]) const {
    if constexpr (kVectors) {
      store_floats(head + column(0), x);
    } else {
      for (int e = 0; e < kElements; ++e) {
        if (column(e) < width) round_to(head[column(e)], x[e]);
      }
    }
  }
  GPU_DEVICE void take(AmaxAccumulator& most, const float (&x)[kElements]) const {
    if constexpr (kVectors) {
      most.take(x);
    } else {
      for (int e = 0; e < kElements; ++e) {
        const float one[] = {x[e]};
        if (column(e) < width) most.take(one);
      }
    }
  }
};

// A group of kLanes lanes owns kForwardItems heads, processed one after another. Bound by memory: q
// and k are read once and written twice (normalised, and to raw).
template <typename T, int kLanes, int kVectors>
__global__ __launch_bounds__(kThreads) void qk_norm_forward_kernel(
    const __grid_constant__ QkNormForward<T> a) {
  constexpr int kGroups = kThreads / kLanes;
  const Head<kLanes, kVectors> head{int(threadIdx.x) % kLanes, int(a.head_dim)};
  // Total number of heads, below 2^32 - 2^16 (checked at launch).
  const uint32_t normed = uint32_t(a.heads + a.kv_heads), items = uint32_t(a.qkv.dim[0]) * normed;
  const uint32_t first = blockIdx.x * uint32_t(kGroups * kForwardItems) + threadIdx.x / kLanes;
  for (int k = 0; k < kForwardItems; ++k) {
    const uint32_t item = first + uint32_t(k * kGroups);
    const bool valid = item < items;
    const int64_t i = valid ? item / normed : 0, h = valid ? item % normed : 0;
    T* const x_at = a.qkv.row(i) + h * a.head_dim;
    float x[kElements] = {}, weight[kElements];
    if (valid) head.load(x, x_at);
    float squares = 0;
    for (int e = 0; e < kElements; ++e) squares += x[e] * x[e];
    squares = warp_sum(squares, kLanes);
    if (!valid) continue;
    const float rstd = 1.0f / sqrtf(squares / float(a.head_dim) + a.eps);
    head.store(a.raw.row(i) + h * a.head_dim, x);
    head.load(weight, h < a.heads ? a.q_weight.data : a.k_weight.data);
    for (int e = 0; e < kElements; ++e) x[e] = weight[e] * (x[e] * rstd);
    head.store(x_at, x);
    if (head.my_lane == 0) a.rstd.at(i, h) = rstd;
  }
}

// Each block owns 64 rows and their partial sums of both weight gradients. A group of kLanes lanes
// takes every kGroups-th head of them and keeps its share of the sums in registers; the shares are
// added through shared memory in group order. Bound by memory: dq, dk and raw read, dq and dk
// written, 3 sizeof(T) bytes per element.
template <typename T, int kLanes, int kVectors, WithAmax kWithAmax>
__global__ __launch_bounds__(kThreads) void qk_norm_backward_kernel(
    const __grid_constant__ QkNormBackward<T> a) {
  constexpr int kGroups = kThreads / kLanes;
  GPU_SHARED(float, sums, [kGroups][kLanes * kElements]);
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  AmaxAccumulator most = AmaxAccumulator::of<kWithAmax>(a.amax);
  const Head<kLanes, kVectors> head{int(threadIdx.x) % kLanes, int(a.head_dim)};
  const int group = int(threadIdx.x) / kLanes;
  const int64_t first_row = int64_t{blockIdx.x} * kRowsPerBlock;
  const int64_t rows_left = a.dqkv.dim[0] - first_row;
  const int normed = int(a.heads + a.kv_heads);
  const int items = int(rows_left < kRowsPerBlock ? rows_left : kRowsPerBlock) * normed;
  float dq[kElements] = {}, dk[kElements] = {};
  for (int item = group; item - group < items; item += kGroups) {
    const bool valid = item < items;
    const int64_t i = first_row + (valid ? item / normed : 0);
    const int h = valid ? item % normed : 0;
    T* const dx_at = a.dqkv.row(i) + h * a.head_dim;
    float dx[kElements] = {}, xhat[kElements] = {}, weight[kElements] = {};
    float rstd = 0;
    if (valid) {
      rstd = a.rstd.at(i, h);
      head.load(dx, dx_at);
      head.load(xhat, a.raw.row(i) + h * a.head_dim);
      head.load(weight, h < a.heads ? a.q_weight.data : a.k_weight.data);
    }
    float dot = 0;
    for (int e = 0; e < kElements; ++e) {
      xhat[e] *= rstd;
      dot += weight[e] * dx[e] * xhat[e];
    }
    const float mean = warp_sum(dot, kLanes) / float(a.head_dim);
    for (int e = 0; e < kElements; ++e) {
      const float of_weight = dx[e] * xhat[e];
      dq[e] += h < a.heads ? of_weight : 0.0f;
      dk[e] += h < a.heads ? 0.0f : of_weight;
      dx[e] = rstd * (weight[e] * dx[e] - xhat[e] * mean);
    }
    if (!valid) continue;
    head.store(dx_at, dx);
    head.take(most, dx);
  }
  most.raise<T>(scratch);

  const int width = int(a.head_dim);
  for (int of_k = 0; of_k < 2; ++of_k) {
    for (int e = 0; e < kElements; ++e) {
      sums[group][head.column(e)] = of_k ? dk[e] : dq[e];
    }
    sync_block();
    for (int d = int(threadIdx.x); d < width; d += kThreads) {
      float sum = 0;
      for (int g = 0; g < kGroups; ++g) sum += sums[g][d];
      a.partial.at(blockIdx.x, of_k * width + d) = sum;
    }
    sync_block();
  }
}

// Each block owns 32 columns of the partial sums; thread row y takes every 32nd of their rows, then
// the thread rows are added in order. The partials are 8 D bytes per 64 rows, at most a fortieth of
// the bytes of the first kernel.
template <typename T>
__global__ __launch_bounds__(kWarp* kWarp) void qk_norm_weights_kernel(
    const __grid_constant__ QkNormBackward<T> a, const int64_t blocks) {
  GPU_SHARED(float, sums, [kWarp][kWarp]);
  const int column = int(blockIdx.x) * kWarp + int(threadIdx.x), width = int(a.head_dim);
  float sum = 0;
  if (column < 2 * width) {
    for (int64_t b = threadIdx.y; b < blocks; b += kWarp) sum += a.partial.at(b, column);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  sync_block();
  if (threadIdx.y > 0 || column >= 2 * width) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  if (column < width) {
    a.dq_weight[column] += total;
  } else {
    a.dk_weight[column - width] += total;
  }
}

// Lanes per head: 4, 8, 16 or 32 with vector accesses; 0 if vectors do not fit (32 lanes, scalar
// accesses).
int vector_lanes(int64_t head_dim, bool aligned) {
  for (const int lanes : {4, 8, 16, 32}) {
    if (aligned && head_dim == lanes * kElements) return lanes;
  }
  return 0;
}

template <typename T, int kLanes, int kVectors>
void launch_forward_as(Exec on, const QkNormForward<T>& a) {
  constexpr int64_t kPerBlock = kThreads / kLanes * kForwardItems;
  const int64_t items = a.qkv.dim[0] * (a.heads + a.kv_heads);
  launch(on,
         {.name = "qk_norm_forward",
          .grid = {unsigned(ceil_div(items, kPerBlock))},
          .block = {kThreads}},
         qk_norm_forward_kernel<T, kLanes, kVectors>, a);
}

template <typename T, int kLanes, int kVectors>
void launch_backward_as(Exec on, const QkNormBackward<T>& a) {
  launch(on,
         {.name = "qk_norm_backward",
          .grid = {unsigned(qk_norm_backward_blocks(a.dqkv.dim[0]))},
          .block = {kThreads}},
         a.amax.empty() ? qk_norm_backward_kernel<T, kLanes, kVectors, WithAmax::kNo>
                        : qk_norm_backward_kernel<T, kLanes, kVectors, WithAmax::kYes>,
         a);
}

void check_size(const char* op, int64_t heads, int64_t head_dim) {
  CHECK(head_dim <= kWidest && heads < (int64_t{1} << 32) - (1 << 16),
        "%s: %ld heads of width %ld; a GPU supports fewer than 2^32 heads of width <= %d", op,
        long(heads), long(head_dim), kWidest);
}

template <typename T>
void launch_forward(Exec on, const QkNormForward<T>& a) {
  if (a.raw.size() == 0) return;
  check_size("qk_norm_forward", a.rstd.size(), a.head_dim);
  const int64_t width = a.head_dim;
  const bool aligned = in_vectors(a.qkv.data, width) && in_vectors(a.raw.data, width) &&
                       in_vectors(a.q_weight.data, width) && in_vectors(a.k_weight.data, width);
  switch (vector_lanes(width, aligned)) {
    case 4:
      return launch_forward_as<T, 4, 1>(on, a);
    case 8:
      return launch_forward_as<T, 8, 1>(on, a);
    case 16:
      return launch_forward_as<T, 16, 1>(on, a);
    case 32:
      return launch_forward_as<T, 32, 1>(on, a);
    default:
      return launch_forward_as<T, 32, 0>(on, a);
  }
}

template <typename T>
void launch_backward(Exec on, const QkNormBackward<T>& a) {
  if (a.raw.size() == 0) return;
  check_size("qk_norm_backward", a.rstd.size(), a.head_dim);
  const int64_t width = a.head_dim;
  const bool aligned = in_vectors(a.dqkv.data, width) && in_vectors(a.raw.data, width) &&
                       in_vectors(a.q_weight.data, width) && in_vectors(a.k_weight.data, width);
  switch (vector_lanes(width, aligned)) {
    case 4:
      launch_backward_as<T, 4, 1>(on, a);
      break;
    case 8:
      launch_backward_as<T, 8, 1>(on, a);
      break;
    case 16:
      launch_backward_as<T, 16, 1>(on, a);
      break;
    case 32:
      launch_backward_as<T, 32, 1>(on, a);
      break;
    default:
      launch_backward_as<T, 32, 0>(on, a);
      break;
  }
  launch(on,
         {.name = "qk_norm_weights",
          .grid = {unsigned(ceil_div(2 * width, kWarp))},
          .block = {kWarp, kWarp}},
         qk_norm_weights_kernel<T>, a, qk_norm_backward_blocks(a.dqkv.dim[0]));
}

}  // namespace

void qk_norm_forward(Exec on, const QkNormForward<float>& a) {
  launch_forward(on, a);
}
void qk_norm_forward(Exec on, const QkNormForward<bf16>& a) {
  launch_forward(on, a);
}
void qk_norm_backward(Exec on, const QkNormBackward<float>& a) {
  launch_backward(on, a);
}
void qk_norm_backward(Exec on, const QkNormBackward<bf16>& a) {
  launch_backward(on, a);
}

}  // namespace assay::gpu
