#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/adamw_bf16.h"
#include "ops/adamw_constants.h"
#include "ops/gpu/adamw_element.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;

// Eight elements of a bf16 tensor, or the last few.
struct Eight {
  bf16* at;
  int count;    // of them in the tensor
  int vectors;  // all eight, and aligned to 16 bytes

  GPU_DEVICE void load(float (&x)[kAdamWDraw]) const {
    if (vectors) return load_floats(x, at);
    for (int e = 0; e < kAdamWDraw; ++e) x[e] = e < count ? float(at[e]) : 0.0f;
  }
  // Rounds stochastically, and leaves in x what is stored.
  GPU_DEVICE void store(float (&x)[kAdamWDraw], const std::array<uint32_t, 4>& words) const {
    Vec<bf16, kAdamWDraw> y;
    for (int e = 0; e < kAdamWDraw; ++e) {
      y[e] = bf16::stochastic(x[e], words[size_t(e / 2)] >> (e % 2 * 16));
      x[e] = float(y[e]);
    }
    if (vectors) return store_whole<kAdamWDraw>(at, y);
    for (int e = 0; e < kAdamWDraw; ++e) {  // constant bounds keep y in registers
      if (e < count) at[e] = y[e];
    }
  }
};

struct Squares {
  double grads = 0, updates = 0, weights = 0;
};

// Steps elements 8 group, ..., 8 group + 7.
template <bool kSquare>
GPU_DEVICE void step_group(const AdamWBf16& a, const AdamWConstants& s, float scale, int64_t group,
                           int vectors, Squares& sums) {
  const int64_t n = a.grad.dim[0], i = group * kAdamWDraw;
  const int count = n - i < kAdamWDraw ? int(n - i) : kAdamWDraw;
  const int whole = vectors && count == kAdamWDraw;
  const Eight weights{a.weight.data + i, count, whole};
  const Eight firsts{a.m.data + i, count, whole}, seconds{a.v.data + i, count, whole};
  float g[kAdamWDraw], p[kAdamWDraw], m[kAdamWDraw], v[kAdamWDraw];
  if (whole) {
    load_floats(g, a.grad.data + i);
  } else {
    for (int e = 0; e < kAdamWDraw; ++e) g[e] = e < count ? a.grad[i + e] : 0.0f;
  }
  weights.load(p);
  firsts.load(m);
  seconds.load(v);
  for (int e = 0; e < kAdamWDraw; ++e) {
    const AdamWElement x = updated(s, {p[e], m[e], v[e]}, g[e] * scale);
    p[e] = x.master;
    m[e] = x.m;
    v[e] = x.v;
    if (kSquare && e < count) {
      sums.grads += double(g[e]) * double(g[e]);
      sums.updates += double(x.off) * double(x.off);
    }
  }
  const uint64_t block = kAdamWRounded * uint64_t(a.first / kAdamWDraw + group);
  weights.store(p, random_block(a.key, block));
  firsts.store(m, random_block(a.key, block + 1));
  seconds.store(v, random_block(a.key, block + 2));
  for (int e = 0; e < kAdamWDraw; ++e) {
    if (kSquare && e < count) sums.weights += double(p[e]) * double(p[e]);
  }
}

// Each thread owns the eight elements of its generator blocks. Bound by memory: 16 bytes per
// element. Ten rounds of Philox for three blocks are about thirty integer instructions per element,
// which fit under the memory time beside the arithmetic.
__global__ __launch_bounds__(kThreads) void adamw_bf16_kernel(
    const __grid_constant__ AdamWBf16 a, const __grid_constant__ AdamWConstants s,
    const int vectors) {
  const int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (group * kAdamWDraw >= a.grad.dim[0]) return;
  Squares unused;
  step_group<false>(a, s, a.grad_scale.empty() ? 1.0f : a.grad_scale[0], group, vectors, unused);
}

// Sampled step: each block owns one piece, so that its sums have a fixed order.
__global__ __launch_bounds__(kThreads) void adamw_bf16_squares_kernel(
    const __grid_constant__ AdamWBf16 a, const __grid_constant__ AdamWConstants s,
    const int vectors) {
  GPU_SHARED(double, scratch, [kWarp]);
  constexpr int64_t kGroups = kAdamWPiece / kAdamWDraw;
  const int64_t groups = (a.grad.dim[0] + kAdamWDraw - 1) / kAdamWDraw;
  const int64_t begin = int64_t{blockIdx.x} * kGroups;
  const int64_t end = begin + kGroups < groups ? begin + kGroups : groups;
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  Squares own;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    step_group<true>(a, s, scale, i, vectors, own);
  }
  const double sums[] = {block_sum(own.grads, scratch), block_sum(own.updates, scratch),
                         block_sum(own.weights, scratch)};
  if (threadIdx.x == 0) {
    for (int j = 0; j < 3; ++j) a.squares.at(blockIdx.x, j) = sums[j];
  }
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace

void adamw_bf16(Exec on, const AdamWBf16& a) {
  const int64_t n = a.grad.dim[0];
  if (n == 0) return;
  const int vectors =
      aligned(a.grad.data) && aligned(a.weight.data) && aligned(a.m.data) && aligned(a.v.data);
  if (!a.squares.empty()) {
    return launch(
        on,
        {.name = "adamw_bf16_squares", .grid = {unsigned(adamw_pieces(n))}, .block = {kThreads}},
        adamw_bf16_squares_kernel, a, adamw_constants(a), vectors);
  }
  constexpr int64_t kPerBlock = int64_t{kThreads} * kAdamWDraw;
  launch(on,
         {.name = "adamw_bf16", .grid = {unsigned(ceil_div(n, kPerBlock))}, .block = {kThreads}},
         adamw_bf16_kernel, a, adamw_constants(a), vectors);
}

}  // namespace assay::gpu
