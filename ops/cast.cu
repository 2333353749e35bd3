#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/cast.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;  // elements per access of the float side; the bf16 side moves 8 bytes

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

}  // namespace assay::gpu
