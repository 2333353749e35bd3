#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/hadamard.h"
#include "ops/zero.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 128;

// Each thread owns 16 rows of a column; the columns of a warp are adjacent. Bound by memory: x and
// y once.
template <typename T>
__global__ __launch_bounds__(kThreads) void hadamard_kernel(const __grid_constant__ Hadamard<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t r0 = int64_t{blockIdx.x} * kHadamard;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  uint32_t most = 0;
  if (c < a.x.dim[1]) {
    float v[kHadamard];
    for (int i = 0; i < kHadamard; ++i) {
      v[i] = r0 + i < a.x.dim[0] ? float(a.x.at(r0 + i, c)) : 0.0f;
    }
    hadamard16(v, a.signs, a.way);
    for (int i = 0; i < kHadamard; ++i) {
      T y;
      round_to(y, v[i]);
      a.y.at(r0 + i, c) = y;
      take_most(most, float(y));
    }
  }
  if (!a.amax.empty()) update_amax(a.amax.data, most, scratch);
}

template <typename T>
void launch_hadamard(Exec on, const Hadamard<T>& a) {
  if (!a.amax.empty()) zero(on, a.amax);
  launch(on,
         {.name = "hadamard",
          .grid = {unsigned(a.y.dim[0] / kHadamard), unsigned(ceil_div(a.x.dim[1], kThreads))},
          .block = {kThreads}},
         hadamard_kernel<T>, a);
}

}  // namespace

void hadamard(Exec on, const Hadamard<float>& a) {
  launch_hadamard(on, a);
}
void hadamard(Exec on, const Hadamard<bf16>& a) {
  launch_hadamard(on, a);
}

}  // namespace assay::gpu
