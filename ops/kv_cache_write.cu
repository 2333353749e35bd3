#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/kv_cache_write.h"

namespace assay::gpu {

namespace {

constexpr int kRowsPerBlock = 8;

// Each warp owns a row. Bound by memory: 2 W sizeof(T) bytes per row.
template <typename T, int N>
__global__ __launch_bounds__(kRowsPerBlock* kWarp) void kv_cache_write_kernel(
    const __grid_constant__ KvCacheWrite<T> a) {
  const int64_t i = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (i >= a.row.dim[0]) return;
  const T* const x = a.x.row(i) + a.column;
  T* const kept = a.kept.row(a.row[i]);
  for (int64_t c = int64_t{threadIdx.x} * N; c < a.kept.dim[1]; c += kWarp * N) {
    float element[N];
    load_floats(element, x + c);
    store_floats(kept + c, element);
  }
}

template <typename T>
void launch_rows(Exec on, const KvCacheWrite<T>& a) {
  if (a.row.dim[0] == 0 || a.kept.dim[1] == 0) return;
  const bool vectors = in_vectors(a.kept.data, a.kept.dim[1]) && in_vectors(a.x.data, a.x.dim[1]) &&
                       a.column % kVector == 0;
  const unsigned blocks = unsigned(ceil_div(a.row.dim[0], kRowsPerBlock));
  launch(on, {.name = "kv_cache_write", .grid = {blocks}, .block = {kWarp, kRowsPerBlock}},
         vectors ? kv_cache_write_kernel<T, kVector> : kv_cache_write_kernel<T, 1>, a);
}

}  // namespace

void kv_cache_write(Exec on, const KvCacheWrite<float>& a) {
  launch_rows(on, a);
}
void kv_cache_write(Exec on, const KvCacheWrite<bf16>& a) {
  launch_rows(on, a);
}

}  // namespace assay::gpu
