#include "cuda/launch.h"
#include "ops/quantise/gpu_fake_measures.h"
#include "ops/quantise/partition.h"

namespace assay::gpu::fake {

namespace {

// Each block merges one measure over the pieces: each thread takes every 256th piece, then the
// block reduces.
template <typename X>
__global__ __launch_bounds__(kThreads) void fake_measures_kernel(
    const __grid_constant__ FakeQuantise<X> a, const int64_t pieces) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int measure = int(blockIdx.x) % kFakeMeasures;
  const Merged merge{measure};
  double all = 0;
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
    all = merge(all, a.partial.at(i, blockIdx.x));
  }
  all = block_reduce(all, merge, 0.0, scratch);
  if (threadIdx.x != 0) return;

  // Tensor scale: measured from S and the amax.
  const int of_row = int(blockIdx.x) < kFakeMeasures;
  const FakeCopy& copy = of_row ? a.row : a.column;
  if (needs_amax(copy) && a.rows() > 0) {
    const float amax = a.amax_of(of_row ? FakeWay::kRow : FakeWay::kColumn);
    const float s = tensor_scale(copy.format, amax);
    all = merge(all, tensor_measure(measure, copy.format, s, amax));
  }
  a.measures[blockIdx.x] = merge(a.measures[blockIdx.x], all);
}

}  // namespace

template <typename X>
void merge_measures(Exec on, const FakeQuantise<X>& a, int64_t pieces) {
  launch(on, {.name = "fake_measures", .grid = {unsigned(2 * kFakeMeasures)}, .block = {kThreads}},
         fake_measures_kernel<X>, a, pieces);
}
template void merge_measures(Exec, const FakeQuantise<float>&, int64_t);
template void merge_measures(Exec, const FakeQuantise<bf16>&, int64_t);

}  // namespace assay::gpu::fake
