#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/rope.h"

namespace assay::gpu {

namespace {

constexpr int kRowsPerBlock = 8;

// Rotates every head of q and k by the row's angle, or by its negative (sign = -1).
template <typename T>
struct Rotation {
  View<T, 2> rows;
  View<const float, 2> cos, sin;
  int64_t rotated_heads, head_dim, sequence;
  float sign;
  View<const int32_t, 1> position = {};
  View<float, 1> amax = {};
};

template <int N, typename T>
GPU_DEVICE void rotate_row(const Rotation<T>& a, int64_t i, AmaxAccumulator& most) {
  const int half = int(a.head_dim / 2), pieces = half / N;
  const int64_t t = a.position.empty() ? i % a.sequence : a.position[i];
  for (int item = int(threadIdx.x); item < int(a.rotated_heads) * pieces; item += kWarp) {
    const int d = item % pieces * N;
    T* low = a.rows.row(i) + item / pieces * a.head_dim + d;
    float x[N], y[N], c[N], s[N], rotated_x[N], rotated_y[N];
    load_floats(x, low);
    load_floats(y, low + half);
    load_floats(c, a.cos.row(t) + d);
    load_floats(s, a.sin.row(t) + d);
    for (int e = 0; e < N; ++e) {
      const float sine = a.sign * s[e];
      rotated_x[e] = x[e] * c[e] - y[e] * sine;
      rotated_y[e] = y[e] * c[e] + x[e] * sine;
    }
    store_floats(low, rotated_x);
    store_floats(low + half, rotated_y);
    most.take(rotated_x);
    most.take(rotated_y);
  }
}

// Each warp owns a row, each lane N pairs (x[d], x[d + D/2]) of one head at a time. Bound by
// memory: q and k are read and written once, 4 sizeof(T) bytes per pair; the table (8 bytes per
// pair, T D floats in total) is read from L1 and L2. This pass costs a read and a write of q and k,
// which an attention kernel that rotates while loading would save.
template <typename T, int N, WithAmax kWithAmax>
__global__ __launch_bounds__(kRowsPerBlock* kWarp) void rope_kernel(
    const __grid_constant__ Rotation<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t i = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  AmaxAccumulator most = AmaxAccumulator::of<kWithAmax>(a.amax);
  if (i < a.rows.dim[0]) rotate_row<N>(a, i, most);
  most.raise<T>(scratch);
}

template <WithAmax kWithAmax, typename T>
void launch_rotation_as(Exec on, const char* name, const Rotation<T>& a) {
  if (a.rows.size() == 0) return;
  const int64_t half = a.head_dim / 2;
  const bool vectors =
      in_vectors(a.rows.data, half) && in_vectors(a.cos.data, half) && in_vectors(a.sin.data, half);
  const unsigned blocks = unsigned(ceil_div(a.rows.dim[0], kRowsPerBlock));
  launch(on, {.name = name, .grid = {blocks}, .block = {kWarp, kRowsPerBlock}},
         vectors ? rope_kernel<T, kVector, kWithAmax> : rope_kernel<T, 1, kWithAmax>, a);
}
template <typename T>
void launch_rotation(Exec on, const char* name, const Rotation<T>& a) {
  if (a.amax.empty()) return launch_rotation_as<WithAmax::kNo>(on, name, a);
  launch_rotation_as<WithAmax::kYes>(on, name, a);
}

template <typename T>
void launch_forward(Exec on, const RopeForward<T>& a) {
  const Rotation<T> rotation{a.qkv,      a.cos,      a.sin, a.heads + a.kv_heads,
                             a.head_dim, a.sequence, 1.0f,  a.position};
  launch_rotation(on, "rope_forward", rotation);
}

template <typename T>
void launch_backward(Exec on, const RopeBackward<T>& a) {
  const Rotation<T> rotation{a.dqkv, a.cos, a.sin, a.heads + a.kv_heads, a.head_dim, a.sequence,
                             -1.0f,  {},    a.amax};
  launch_rotation(on, "rope_backward", rotation);
}

}  // namespace

void rope_forward(Exec on, const RopeForward<float>& a) {
  launch_forward(on, a);
}
void rope_forward(Exec on, const RopeForward<bf16>& a) {
  launch_forward(on, a);
}
void rope_backward(Exec on, const RopeBackward<float>& a) {
  launch_backward(on, a);
}
void rope_backward(Exec on, const RopeBackward<bf16>& a) {
  launch_backward(on, a);
}

}  // namespace assay::gpu
