#include <algorithm>

#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/checksum.h"
#include "ops/gpu/elements.h"
#include "ops/zero.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;
constexpr int64_t kBlocksOfAnSm = 8;
constexpr uint64_t kFirstWeight = 0x9E3779B97F4A7C15u;  // as in base/hash.h

// Grid-stride loop; the first `whole` elements are read four at a time. Each block adds its sum
// with one integer atomic. Bound by memory: two wide multiplications per element.
template <typename T>
__global__ __launch_bounds__(kThreads) void checksum_kernel(const __grid_constant__ Checksum<T> a,
                                                            int64_t whole) {
  GPU_SHARED(uint64_t, scratch, [kWarp]);
  const int64_t n = a.x.dim[0];
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  uint64_t sum = 0;
  const auto take = [&](float x, int64_t i) {
    sum += (uint64_t{bits_of(x)} + 1) * (2 * uint64_t(a.first + i) + kFirstWeight);
  };
#pragma unroll 4
  for (int64_t i = thread * kFour; i < whole; i += stride * kFour) {
    const auto x = load_vec<kFour>(a.x.data + i);
    for (int e = 0; e < kFour; ++e) take(float(x[e]), i + e);
  }
  for (int64_t i = whole + thread; i < n; i += stride) take(float(a.x[i]), i);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) atomic_add(a.sum.data, int64_t(sum));
}

template <typename T>
void launch_checksum(Exec on, const Checksum<T>& a) {
  zero(on, a.sum);
  const int64_t n = a.x.size();
  if (n == 0) return;
  const bool vectors = reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0;
  const int64_t most = kBlocksOfAnSm * on.gpu->multiprocessors;
  const int64_t blocks = std::clamp<int64_t>(n / (kThreads * kFour), 1, most);
  launch(on, {.name = "checksum", .grid = {unsigned(blocks)}, .block = {kThreads}},
         checksum_kernel<T>, a, vectors ? n / kFour * kFour : 0);
}

}  // namespace

void checksum(Exec on, const Checksum<float>& a) {
  launch_checksum(on, a);
}
void checksum(Exec on, const Checksum<bf16>& a) {
  launch_checksum(on, a);
}

}  // namespace assay::gpu
