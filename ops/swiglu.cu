#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/gpu/swiglu.h"
#include "ops/swiglu.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;

// Row and column of this thread's N columns; false past the end. Thread indices fit in 32 bits
// (checked at launch), where a division is a dozen instructions.
template <int N>
GPU_DEVICE bool my_columns(int64_t rows, int64_t width, int64_t& row, int64_t& column) {
  const uint32_t pieces = uint32_t(width / N);
  const uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  row = i / pieces;
  column = int64_t{i % pieces} * N;
  return row < rows;
}

// Each thread owns N adjacent elements of h. Bound by memory: 3 sizeof(T) bytes per element of h,
// each read or written once.
template <typename T, int N>
__global__ __launch_bounds__(kThreads) void swiglu_forward_kernel(
    const __grid_constant__ SwigluForward<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t width = a.h.dim[1];
  int64_t row, column;
  AmaxAccumulator most{a.amax.data};
  if (my_columns<N>(a.h.dim[0], width, row, column)) {
    const T* gate = a.gate_up.row(row) + column;
    float g[N], u[N], h[N];
    load_floats(g, gate);
    load_floats(u, gate + width);
    for (int e = 0; e < N; ++e) h[e] = swiglu<T>(g[e], u[e]);
    store_floats(a.h.row(row) + column, h);
    most.take(h);
  }
  most.raise<T>(scratch);
}

// As in forward: 5 sizeof(T) bytes per element of dh. A thread reads all its inputs before it
// writes: dgate_up may be gate_up.
template <typename T, int N>
__global__ __launch_bounds__(kThreads) void swiglu_backward_kernel(
    const __grid_constant__ SwigluBackward<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t width = a.dh.dim[1];
  int64_t row, column;
  AmaxAccumulator most{a.amax.data};
  if (my_columns<N>(a.dh.dim[0], width, row, column)) {
    const T* gate = a.gate_up.row(row) + column;
    float g[N], u[N], d[N], dg[N], du[N];
    load_floats(g, gate);
    load_floats(u, gate + width);
    load_floats(d, a.dh.row(row) + column);
    for (int e = 0; e < N; ++e) {
      const SwigluSlopes slope = swiglu_slopes<T>(g[e], u[e]);
      dg[e] = d[e] * slope.gate;
      du[e] = d[e] * slope.up;
    }
    T* dgate = a.dgate_up.row(row) + column;
    store_floats(dgate, dg);
    store_floats(dgate + width, du);
    most.take(dg);
    most.take(du);
  }
  most.raise<T>(scratch);
}

unsigned blocks_for(const char* op, int64_t elements, int64_t per_thread) {
  const int64_t threads = elements / per_thread;
  CHECK(threads < (int64_t{1} << 32) - kThreads, "%s: %ld elements are too many", op,
        long(elements));
  return unsigned(ceil_div(threads, kThreads));
}

template <typename T>
void launch_forward(Exec on, const SwigluForward<T>& a) {
  if (a.h.size() == 0) return;
  const bool vectors = in_vectors(a.h.data, a.h.dim[1]) && in_vectors(a.gate_up.data, a.h.dim[1]);
  launch(on,
         {.name = "swiglu_forward",
          .grid = {blocks_for("swiglu_forward", a.h.size(), vectors ? kVector : 1)},
          .block = {kThreads}},
         vectors ? swiglu_forward_kernel<T, kVector> : swiglu_forward_kernel<T, 1>, a);
}

template <typename T>
void launch_backward(Exec on, const SwigluBackward<T>& a) {
  if (a.dh.size() == 0) return;
  const int64_t width = a.dh.dim[1];
  const bool vectors = in_vectors(a.dh.data, width) && in_vectors(a.gate_up.data, width) &&
                       in_vectors(a.dgate_up.data, width);
  launch(on,
         {.name = "swiglu_backward",
          .grid = {blocks_for("swiglu_backward", a.dh.size(), vectors ? kVector : 1)},
          .block = {kThreads}},
         vectors ? swiglu_backward_kernel<T, kVector> : swiglu_backward_kernel<T, 1>, a);
}

}  // namespace

void swiglu_forward(Exec on, const SwigluForward<float>& a) {
  launch_forward(on, a);
}
void swiglu_forward(Exec on, const SwigluForward<bf16>& a) {
  launch_forward(on, a);
}
void swiglu_backward(Exec on, const SwigluBackward<float>& a) {
  launch_backward(on, a);
}
void swiglu_backward(Exec on, const SwigluBackward<bf16>& a) {
  launch_backward(on, a);
}

}  // namespace assay::gpu
