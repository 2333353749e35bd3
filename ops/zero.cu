#include <algorithm>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/zero.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kBytes = 16;  // bytes per store

// Thread 0 of the grid writes the bytes before the first 16-byte boundary and after the last, one
// by one. Bound by memory.
__global__ __launch_bounds__(kThreads) void zero_kernel(View<std::byte, 1> x, int64_t head,
                                                        int64_t stores) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  auto* const middle = reinterpret_cast<uint32_t*>(x.data + head);
  for (int64_t i = thread; i < stores; i += stride) {
    store_vec<4>(middle + 4 * i, Vec<uint32_t, 4>{{0, 0, 0, 0}});
  }
  if (thread != 0) return;
  for (int64_t i = 0; i < head; ++i) x[i] = std::byte{0};
  for (int64_t i = head + stores * kBytes; i < x.dim[0]; ++i) x[i] = std::byte{0};
}

}  // namespace

void zero(Exec on, const Zero& a) {
  const int64_t size = a.x.size();
  if (size == 0) return;
  const int64_t misaligned = int64_t(reinterpret_cast<uintptr_t>(a.x.data) % kBytes);
  const int64_t head = std::min(size, (kBytes - misaligned) % kBytes);
  const int64_t stores = (size - head) / kBytes;
  const int64_t blocks = std::clamp<int64_t>(ceil_div(stores, kThreads), 1, 4096);
  launch(on, {.name = "zero", .grid = {uint32_t(blocks)}, .block = {kThreads}}, zero_kernel, a.x,
         head, stores);
}

}  // namespace assay::gpu
