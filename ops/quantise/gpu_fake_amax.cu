#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/quantise/gpu_fake_amax.h"
#include "ops/quantise/gpu_fake_tile.h"
#include "ops/quantise/hadamard16.h"
#include "ops/quantise/partition.h"
#include "ops/zero.h"

namespace assay::gpu::fake {

namespace {

// Each block owns a tile of a band of 128 rows, each thread 16 rows of a column at a time. Bound by
// memory: z once.
template <typename X>
__global__ __launch_bounds__(kThreads) void fake_amax_kernel(
    const __grid_constant__ FakeQuantise<X> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const RowRange rows = band_range(a, kHighBand, blockIdx.x);
  const int64_t c = int64_t{blockIdx.y} * kColumns + threadIdx.x % kColumns;
  const int rotates = a.rotation == ColumnRotation::kHadamard16;
  uint32_t most = 0, rotated = 0;
  const int64_t first = rows.begin + int(threadIdx.x) / kColumns * kUnit;
  for (int64_t r = first; r < rows.end; r += kThreads / kColumns * kUnit) {
    float v[kUnit];
    for (int i = 0; i < kUnit; ++i) {
      v[i] = r + i < rows.end && c < a.x.dim[1] ? float(row_of(a, r + i)[c]) : 0.0f;
    }
    for (int i = 0; i < kUnit; ++i) take_most(most, v[i]);
    if (!rotates) continue;
    if (r + kUnit <= rows.end) hadamard16(v, a.signs);
    for (int i = 0; i < kUnit; ++i) take_most(rotated, v[i]);
  }
  update_amax(a.amax.data, most, scratch);
  if (rotates) update_amax(a.amax.data + 1, rotated, scratch);
}

}  // namespace

template <typename X>
void find_amax(Exec on, const FakeQuantise<X>& a) {
  zero(on, a.amax);
  const auto across = unsigned(ceil_div(a.x.dim[1], kColumns));
  launch(on,
         {.name = "fake_amax",
          .grid = {unsigned(band_count(a, kHighBand)), across},
          .block = {kThreads}},
         fake_amax_kernel<X>, a);
}
template void find_amax(Exec, const FakeQuantise<float>&);
template void find_amax(Exec, const FakeQuantise<bf16>&);

}  // namespace assay::gpu::fake
