#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/gpu/load_batch.h"
#include "ops/sparse_linear.h"

namespace assay::gpu {

namespace {

constexpr int kWarps = 8;  // per block
constexpr int kThreads = kWarps * kWarp;
constexpr int kInFlight = 4;  // rows that a warp reads at once

template <int V>
struct Columns {
  float x[V];
};
template <int V, typename T>
GPU_DEVICE Columns<V> load_columns(const T* p) {
  Columns<V> columns;
  load_floats(columns.x, p);
  return columns;
}
template <int V>
GPU_DEVICE void add_scaled(float (&sum)[V], float scale, const Columns<V>& columns) {
  for (int j = 0; j < V; ++j) sum[j] += scale * columns.x[j];
}

// dx: one token per warp; a lane owns V adjacent columns at a time. Bound by memory: x once is what
// dx is, and K rows of the weight a token, from L2 (E C elements: 6 MB at E = 4096, C = 768).
template <typename T, int V>
__global__ __launch_bounds__(kThreads) void sparse_linear_dx_kernel(
    const __grid_constant__ SparseLinearBackward<T> a) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (t >= a.dx.dim[0]) return;
  const int width = int(a.dx.dim[1]), k = int(a.dz.dim[1]);
  const int32_t* const expert = a.expert.row(t);
  const float* const dz = a.dz.row(t);
  for (int c = lane() * V; c < width; c += kWarp * V) {
    float sum[V] = {};
    if (!a.add.empty()) load_floats(sum, a.add.row(t) + c);
    in_batches<kInFlight>(
        0, k, 1, [&](int i) { return load_columns<V>(a.weight.row(expert[i]) + c); },
        [&](int i, const Columns<V>& row) { add_scaled(sum, float(T(dz[i])), row); });
    store_floats(a.dx.row(t) + c, sum);
  }
}

// dW: one expert and 32 V columns per block. Its warps take every eighth assignment and add their
// sums in the order of the warps, so bits depend on the assignments only. Bound by memory: a row of
// x per assignment, dW read and written once. The rows of a popular expert are all read by the C /
// (32 V) blocks that it has.
template <typename T, int V>
__global__ __launch_bounds__(kThreads) void sparse_linear_dw_kernel(
    const __grid_constant__ SparseLinearBackward<T> a) {
  GPU_SHARED(float, sums, [kWarps][kWarp * V]);
  GPU_SHARED(int32_t, token, [kThreads]);
  GPU_SHARED(float, scale, [kThreads]);
  const int e = int(blockIdx.x), begin = a.offsets[e], end = a.offsets[e + 1];
  if (begin == end) return;
  const int width = int(a.dweight.dim[1]), k = int(a.dz.dim[1]);
  const int first = int(blockIdx.y) * kWarp * V, c = first + lane() * V;

  float sum[V] = {};
  for (int batch = begin; batch < end; batch += kThreads) {
    // One assignment per thread: its token, and its dz, rounded as the products read it.
    const int count = end - batch < kThreads ? end - batch : kThreads;
    const int mine = thread_in_block();
    if (mine < count) {
      const int32_t t = a.token[batch + mine];
      int i = 0;
      while (a.expert.at(t, i) != e && i + 1 < k) ++i;
      token[mine] = t;
      scale[mine] = float(T(a.dz.at(t, i)));
    }
    sync_block();

    if (c < width) {
      in_batches<kInFlight>(
          warp(), count, kWarps, [&](int i) { return load_columns<V>(a.x.row(token[i]) + c); },
          [&](int i, const Columns<V>& row) { add_scaled(sum, scale[i], row); });
    }
    sync_block();
  }

  for (int j = 0; j < V; ++j) sums[warp()][lane() * V + j] = sum[j];
  sync_block();
  const int column = thread_in_block();
  if (column >= kWarp * V || first + column >= width) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w][column];
  a.dweight.at(e, first + column) += total;
}

template <int V, typename T>
void launch_backward(Exec on, const SparseLinearBackward<T>& a) {
  const int64_t width = a.x.dim[1];
  launch(on,
         {.name = "sparse_linear_dx",
          .grid = {unsigned(ceil_div(a.x.dim[0], kWarps))},
          .block = {kWarp, kWarps}},
         sparse_linear_dx_kernel<T, V>, a);
  launch(on,
         {.name = "sparse_linear_dw",
          .grid = {unsigned(a.weight.dim[0]), unsigned(ceil_div(width, kWarp * V))},
          .block = {kWarp, kWarps}},
         sparse_linear_dw_kernel<T, V>, a);
}
template <typename T>
void launch_backward_in_vectors(Exec on, const SparseLinearBackward<T>& a) {
  const int64_t width = a.x.dim[1];
  const bool fit = in_vectors(a.dx.data, width) && in_vectors(a.x.data, width) &&
                   in_vectors(a.weight.data, width) && in_vectors(a.add.data, width);
  fit ? launch_backward<kVector>(on, a) : launch_backward<1>(on, a);
}

}  // namespace

void sparse_linear_backward(Exec on, const SparseLinearBackward<float>& a) {
  launch_backward_in_vectors(on, a);
}
void sparse_linear_backward(Exec on, const SparseLinearBackward<bf16>& a) {
  launch_backward_in_vectors(on, a);
}

}  // namespace assay::gpu
