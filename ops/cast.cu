#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/cast.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;  // elements per access of the float side; the bf16 side moves 8 bytes
constexpr int kDraw = 8;  // elements per block of the generator

// Same bits as base/bf16.h, NaN included.
GPU_DEVICE void store_four(bf16* y, const float (&x)[kFour]) {
  Vec<bf16, kFour> v;
  for (int e = 0; e < kFour; ++e) v[e].bits = bf16::round_nearest_even(x[e]);
  store_whole<kFour>(y, v);
}
GPU_DEVICE void store_four(float* y, const float (&x)[kFour]) {
  store_floats(y, x);
}

// Each thread owns four elements, accessed one by one if `vectors` is false. Bound by memory: 6
// bytes per element.
template <typename To, typename From>
__global__ __launch_bounds__(kThreads) void cast_kernel(const __grid_constant__ Cast<To, From> a,
                                                        const int vectors) {
  const int64_t n = a.x.dim[0];
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kFour;
  if (vectors && i + kFour <= n) {
    float x[kFour];
    load_floats(x, a.x.data + i);
    store_four(a.y.data + i, x);
    return;
  }
  for (int64_t j = i; j < i + kFour && j < n; ++j) round_to(a.y[j], float(a.x[j]));
}

// Each thread owns the eight elements of one generator block; the first and the last thread may
// have fewer. Bound by memory: 6 bytes per element. Ten rounds of Philox are about ten integer
// instructions per element, a third of what fits under the memory time.
__global__ __launch_bounds__(kThreads) void cast_stochastic_kernel(
    const __grid_constant__ CastStochastic a, const int vectors) {
  const int64_t n = a.x.dim[0];
  const int64_t block = a.first / kDraw + int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t begin = block * kDraw - a.first;  // may be negative
  if (begin >= n) return;
  const auto words = random_block(a.key, uint64_t(block));
  if (vectors && begin + kDraw <= n) {
    float x[kDraw];
    Vec<bf16, kDraw> y;
    load_floats(x, a.x.data + begin);
    for (int h = 0; h < kDraw; ++h) {
      y[h] = bf16::stochastic(x[h], words[size_t(h / 2)] >> (h % 2 * 16));
    }
    store_whole<kDraw>(a.y.data + begin, y);
    return;
  }
  for (int h = 0; h < kDraw; ++h) {
    const int64_t i = begin + h;
    if (i < 0 || i >= n) continue;
    a.y[i] = bf16::stochastic(a.x[i], words[size_t(h / 2)] >> (h % 2 * 16));
  }
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

unsigned blocks_for(int64_t threads) {
  return unsigned(ceil_div(threads, kThreads));
}

template <typename To, typename From>
void launch_cast(Exec on, const Cast<To, From>& a) {
  if (a.x.dim[0] == 0) return;
  const int vectors = aligned(a.x.data) && aligned(a.y.data);
  launch(on,
         {.name = "cast", .grid = {blocks_for(ceil_div(a.x.dim[0], kFour))}, .block = {kThreads}},
         cast_kernel<To, From>, a, vectors);
}

}  // namespace

void cast(Exec on, const Cast<bf16, float>& a) {
  launch_cast(on, a);
}
void cast(Exec on, const Cast<float, bf16>& a) {
  launch_cast(on, a);
}

void cast_stochastic(Exec on, const CastStochastic& a) {
  if (a.x.dim[0] == 0) return;
  const int vectors = aligned(a.x.data) && aligned(a.y.data) && a.first % kDraw == 0;
  const int64_t draws = (a.first + a.x.dim[0] - 1) / kDraw - a.first / kDraw + 1;
  launch(on, {.name = "cast_stochastic", .grid = {blocks_for(draws)}, .block = {kThreads}},
         cast_stochastic_kernel, a, vectors);
}

}  // namespace assay::gpu
