#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/amax.h"
#include "ops/gpu/amax.h"
#include "ops/quantise/hadamard16.h"
#include "ops/zero.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kGroups = 8;  // groups of 16 rows per block

// Each thread owns a column of 128 rows, with 16 loads in flight; a warp's loads are adjacent.
// Bound by memory: x is read once.
template <typename T>
__global__ __launch_bounds__(kThreads) void amax_kernel(const __grid_constant__ Amax<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  uint32_t most = 0, rotated = 0;
  for (int g = 0; g < kGroups; ++g) {
    const int64_t r0 = (int64_t{blockIdx.x} * kGroups + g) * kHadamard;
    float v[kHadamard];
    for (int i = 0; i < kHadamard; ++i) {
      const int inside = r0 + i < rows && c < columns;
      v[i] = inside ? float(a.x.at(r0 + i, c)) : 0.0f;
    }
    for (int i = 0; i < kHadamard; ++i) take_most(most, v[i]);
    if (a.rotated.empty()) continue;
    hadamard16(v, a.signs);
    for (int i = 0; i < kHadamard; ++i) take_most(rotated, v[i]);
  }
  update_amax(a.amax.data, most, scratch);
  if (!a.rotated.empty()) update_amax(a.rotated.data, rotated, scratch);
}

template <typename T>
void launch_amax(Exec on, const Amax<T>& a) {
  zero(on, a.amax);
  if (!a.rotated.empty()) zero(on, a.rotated);
  const int64_t blocks = ceil_div(a.x.dim[0], kGroups * kHadamard);
  launch(on,
         {.name = "amax",
          .grid = {unsigned(blocks), unsigned(ceil_div(a.x.dim[1], kThreads))},
          .block = {kThreads}},
         amax_kernel<T>, a);
}

}  // namespace

void amax(Exec on, const Amax<float>& a) {
  launch_amax(on, a);
}
void amax(Exec on, const Amax<bf16>& a) {
  launch_amax(on, a);
}

}  // namespace assay::gpu
