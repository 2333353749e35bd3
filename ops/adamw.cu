#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/adamw.h"
#include "ops/adamw_constants.h"
#include "ops/gpu/adamw_element.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
// Elements of one 16-byte access of the float streams; the bf16 weight moves 8 bytes.
constexpr int kFour = 4;

// Each thread owns four elements. Bound by memory: 28 bytes per element, plus 2 or 4 for the weight
// if it is written; a square root and a division per element cost a tenth of the issue slots.
template <typename T>
__global__ __launch_bounds__(kThreads) void adamw_kernel(const __grid_constant__ AdamW<T> a,
                                                         const __grid_constant__ AdamWConstants s,
                                                         const int vectors) {
  const int64_t n = a.grad.dim[0];
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kFour;
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  if (vectors && i + kFour <= n) {
    float g[kFour], master[kFour], m[kFour], v[kFour];
    load_floats(g, a.grad.data + i);
    load_floats(master, a.master.data + i);
    load_floats(m, a.m.data + i);
    load_floats(v, a.v.data + i);
    for (int e = 0; e < kFour; ++e) {
      const AdamWElement x = updated(s, {master[e], m[e], v[e]}, g[e] * scale);
      master[e] = x.master;
      m[e] = x.m;
      v[e] = x.v;
    }
    store_floats(a.master.data + i, master);
    store_floats(a.m.data + i, m);
    store_floats(a.v.data + i, v);
    if (!a.weight.empty()) store_floats(a.weight.data + i, master);
    return;
  }
  for (int64_t j = i; j < i + kFour && j < n; ++j) {
    const AdamWElement x = updated(s, {a.master[j], a.m[j], a.v[j]}, a.grad[j] * scale);
    a.master[j] = x.master;
    a.m[j] = x.m;
    a.v[j] = x.v;
    if (!a.weight.empty()) round_to(a.weight[j], x.master);
  }
}

// Sampled step: each block owns one piece, so that its sums have a fixed order. Same arithmetic as
// adamw_kernel; 3 x 2 more double operations per element, hidden behind the memory traffic.
template <typename T>
__global__ __launch_bounds__(kThreads) void adamw_squares_kernel(
    const __grid_constant__ AdamW<T> a, const __grid_constant__ AdamWConstants s) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int64_t n = a.grad.dim[0], begin = int64_t{blockIdx.x} * kAdamWPiece;
  const int64_t end = begin + kAdamWPiece < n ? begin + kAdamWPiece : n;
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  double grads = 0, updates = 0, masters = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float grad = a.grad[i];
    const AdamWElement x = updated(s, {a.master[i], a.m[i], a.v[i]}, grad * scale);
    a.master[i] = x.master;
    a.m[i] = x.m;
    a.v[i] = x.v;
    if (!a.weight.empty()) round_to(a.weight[i], x.master);
    grads += double(grad) * double(grad);
    updates += double(x.off) * double(x.off);
    masters += double(x.master) * double(x.master);
  }
  const double sums[] = {block_sum(grads, scratch), block_sum(updates, scratch),
                         block_sum(masters, scratch)};
  if (threadIdx.x == 0) {
    for (int j = 0; j < 3; ++j) a.squares.at(blockIdx.x, j) = sums[j];
  }
}

template <typename T>
void launch_adamw(Exec on, const AdamW<T>& a) {
  const int64_t n = a.grad.dim[0];
  if (n == 0) return;
  if (!a.squares.empty()) {
    return launch(
        on, {.name = "adamw_squares", .grid = {unsigned(adamw_pieces(n))}, .block = {kThreads}},
        adamw_squares_kernel<T>, a, adamw_constants(a));
  }
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const int vectors = aligned(a.grad.data) && aligned(a.master.data) && aligned(a.m.data) &&
                      aligned(a.v.data) && aligned(a.weight.data);
  constexpr int64_t kPerBlock = kThreads * kFour;
  launch(on, {.name = "adamw", .grid = {unsigned(ceil_div(n, kPerBlock))}, .block = {kThreads}},
         adamw_kernel<T>, a, adamw_constants(a), vectors);
}

}  // namespace

void adamw(Exec on, const AdamW<float>& a) {
  launch_adamw(on, a);
}
void adamw(Exec on, const AdamW<bf16>& a) {
  launch_adamw(on, a);
}

}  // namespace assay::gpu
