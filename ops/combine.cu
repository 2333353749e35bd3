#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/combine.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kWarps = 8;  // per block

// y[t] = add[t] + more[t] + sum_k weight(t, k) rows[slot(t, k)], one token per warp. A lane owns V
// adjacent columns at a time; loads of several k are in flight at once, and the sum runs in order
// of k.
template <int V, typename T, typename Weight>
GPU_DEVICE void sum_rows(View<T, 2> y, View<const T, 2> rows, View<const int32_t, 2> slot,
                         View<const T, 2> add, View<const T, 2> more, int64_t t, Weight&& weight) {
  const int width = int(y.dim[1]), k = int(slot.dim[1]);
  const int32_t* from = slot.row(t);
  for (int c = lane() * V; c < width; c += kWarp * V) {
    float sum[V] = {};
    if (!add.empty()) load_floats(sum, add.row(t) + c);
    if (!more.empty()) {
      float x[V];
      load_floats(x, more.row(t) + c);
      for (int j = 0; j < V; ++j) sum[j] += x[j];
    }
#pragma unroll 4
    for (int i = 0; i < k; ++i) {
      float x[V];
      load_floats(x, rows.row(from[i]) + c);
      const float w = weight(i);
      for (int j = 0; j < V; ++j) sum[j] += w * x[j];
    }
    store_floats(y.row(t) + c, sum);
  }
}

// One warp per token. Bound by memory: each row of expert_out once, y once; slots and gates are
// re-read from L1 for every 256 columns.
template <typename T, int V>
__global__ __launch_bounds__(kWarps* kWarp) void combine_forward_kernel(
    const __grid_constant__ CombineForward<T> a) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (t >= a.y.dim[0]) return;
  const float* gate = a.gate.row(t);
  sum_rows<V>(a.y, a.expert_out, a.slot, a.add, a.resid, t, [&](int i) { return gate[i]; });
}

// Same structure and bound as combine_forward_kernel.
template <typename T, int V>
__global__ __launch_bounds__(kWarps* kWarp) void reduce_by_token_kernel(
    const __grid_constant__ ReduceByToken<T> a) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (t >= a.dx.dim[0]) return;
  sum_rows<V>(a.dx, a.dexpert_in, a.slot, a.add, {}, t, [](int) { return 1.0f; });
}

template <int V, typename T>
GPU_DEVICE void backward_of(const CombineBackward<T>& a, int64_t i, AmaxAccumulator& most) {
  const int width = int(a.dy.dim[1]);
  const int64_t slot = a.slot[i];
  const float gate = a.gate[i];
  const T* dy = a.dy.row(i / a.slot.dim[1]);
  const T* out = a.expert_out.row(slot);
  T* dout = a.dexpert_out.row(slot);
  float dot = 0;
#pragma unroll 4
  for (int c = lane() * V; c < width; c += kWarp * V) {
    float d[V], o[V];
    load_floats(d, dy + c);
    load_floats(o, out + c);
    for (int j = 0; j < V; ++j) {
      dot += d[j] * o[j];
      d[j] *= gate;
    }
    store_floats(dout + c, d);
    most.take(d);
  }
  dot = warp_sum(dot);
  if (lane() == 0) a.dgate[i] = dot;
}

// One warp per assignment; a token's assignments are adjacent, so its dy is read K times, all but
// the first from L1 or L2. Bound by memory: expert_out read once and dexpert_out written once.
template <typename T, int V, WithAmax kWithAmax>
__global__ __launch_bounds__(kWarps* kWarp) void combine_backward_kernel(
    const __grid_constant__ CombineBackward<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  AmaxAccumulator most = AmaxAccumulator::of<kWithAmax>(a.amax);
  if (i < a.slot.size()) backward_of<V>(a, i, most);
  most.raise<T>(scratch);
}

template <typename... T>
bool all_in_vectors(int64_t width, const T*... p) {
  return (... && in_vectors(p, width));
}
Launch warps_shape(const char* name, int64_t warps) {
  return {.name = name, .grid = {unsigned(ceil_div(warps, kWarps))}, .block = {kWarp, kWarps}};
}

template <typename T>
void launch_combine_forward(Exec on, const CombineForward<T>& a) {
  const bool fit =
      all_in_vectors(a.y.dim[1], a.y.data, a.expert_out.data, a.add.data, a.resid.data);
  launch(on, warps_shape("combine_forward", a.y.dim[0]),
         fit ? combine_forward_kernel<T, kVector> : combine_forward_kernel<T, 1>, a);
}
template <WithAmax kWithAmax, typename T>
void launch_combine_backward_as(Exec on, const CombineBackward<T>& a) {
  const bool fit = all_in_vectors(a.dy.dim[1], a.dy.data, a.expert_out.data, a.dexpert_out.data);
  launch(on, warps_shape("combine_backward", a.slot.size()),
         fit ? combine_backward_kernel<T, kVector, kWithAmax>
             : combine_backward_kernel<T, 1, kWithAmax>,
         a);
}
template <typename T>
void launch_combine_backward(Exec on, const CombineBackward<T>& a) {
  if (a.amax.empty()) return launch_combine_backward_as<WithAmax::kNo>(on, a);
  launch_combine_backward_as<WithAmax::kYes>(on, a);
}
template <typename T>
void launch_reduce_by_token(Exec on, const ReduceByToken<T>& a) {
  const bool fit = all_in_vectors(a.dx.dim[1], a.dx.data, a.dexpert_in.data, a.add.data);
  launch(on, warps_shape("reduce_by_token", a.dx.dim[0]),
         fit ? reduce_by_token_kernel<T, kVector> : reduce_by_token_kernel<T, 1>, a);
}

}  // namespace

void combine_forward(Exec on, const CombineForward<float>& a) {
  launch_combine_forward(on, a);
}
void combine_forward(Exec on, const CombineForward<bf16>& a) {
  launch_combine_forward(on, a);
}
void combine_backward(Exec on, const CombineBackward<float>& a) {
  launch_combine_backward(on, a);
}
void combine_backward(Exec on, const CombineBackward<bf16>& a) {
  launch_combine_backward(on, a);
}
void reduce_by_token(Exec on, const ReduceByToken<float>& a) {
  launch_reduce_by_token(on, a);
}
void reduce_by_token(Exec on, const ReduceByToken<bf16>& a) {
  launch_reduce_by_token(on, a);
}

}  // namespace assay::gpu
