#include <cmath>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/muon.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;

// One element per thread. Bound by memory: 14 bytes per element, adjacent threads read adjacent
// elements.
__global__ __launch_bounds__(kThreads) void muon_momentum_kernel(
    const __grid_constant__ MuonMomentum a, const float rest) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.grad.dim[0]) return;
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  const float g = rest * (a.grad[i] * scale);
  const float b = fmaf(a.mu, a.momentum[i], g);
  a.momentum[i] = b;
  round_to(a.u[i], a.look == MuonLook::kNesterov ? fmaf(a.mu, b, g) : b);
}

// A block owns one piece of kAdamWPiece elements, so that its sums have a fixed order. Bound by
// memory: 10 bytes per element, 12 with a bf16 weight, 4 more for squares.
template <typename T>
__global__ __launch_bounds__(kThreads) void muon_update_kernel(
    const __grid_constant__ MuonUpdate<T> a) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int64_t n = a.o.dim[0], begin = int64_t{blockIdx.x} * kAdamWPiece;
  const int64_t end = begin + kAdamWPiece < n ? begin + kAdamWPiece : n;
  double grads = 0, updates = 0, masters = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float before = a.master[i];
    const float off = fmaf(a.decay, before, a.rate * float(a.o[i]));
    const float p = before - off;
    a.master[i] = p;
    if (!a.weight.empty()) round_to(a.weight[i], p);
    if (a.squares.empty()) continue;
    const double grad = a.grad[i];
    grads += grad * grad;
    updates += double(off) * double(off);
    masters += double(p) * double(p);
  }
  if (a.squares.empty()) return;
  const double sums[] = {block_sum(grads, scratch), block_sum(updates, scratch),
                         block_sum(masters, scratch)};
  if (threadIdx.x == 0) {
    for (int j = 0; j < 3; ++j) a.squares.at(blockIdx.x, j) = sums[j];
  }
}

template <typename T>
void launch_update(Exec on, const MuonUpdate<T>& a) {
  const int64_t pieces = adamw_pieces(a.o.dim[0]);
  if (pieces == 0) return;
  launch(on, {.name = "muon_update", .grid = {unsigned(pieces)}, .block = {kThreads}},
         muon_update_kernel<T>, a);
}

}  // namespace

void muon_momentum(Exec on, const MuonMomentum& a) {
  const int64_t n = a.grad.dim[0];
  if (n == 0) return;
  launch(on,
         {.name = "muon_momentum", .grid = {unsigned(ceil_div(n, kThreads))}, .block = {kThreads}},
         muon_momentum_kernel, a, float(1 - double(a.mu)));
}
void muon_update(Exec on, const MuonUpdate<float>& a) {
  launch_update(on, a);
}
void muon_update(Exec on, const MuonUpdate<bf16>& a) {
  launch_update(on, a);
}

}  // namespace assay::gpu
