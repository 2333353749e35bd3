#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/context.h"
#include "cuda/cuda_error.h"
#include "tests/ops/cub/by_cub.h"

namespace assay::by_cub {

namespace {

// Bytes of scratch, or the sort itself if there is scratch.
size_t radix_sort(std::byte* scratch, size_t bytes, const SortPairs& a, cudaStream_t stream) {
  const int bits = std::bit_width(uint64_t(a.limit - 1));
  gpu::cuda_check(
      cub::DeviceRadixSort::SortPairs(scratch, bytes, a.keys.data, a.key.data, a.values.data,
                                      a.value.data, a.keys.dim[0], 0, bits > 0 ? bits : 1, stream),
      "sorting by CUB");
  return bytes;
}

}  // namespace

int64_t sort_pairs_scratch_bytes(int64_t n) {
  const View<int32_t, 1> any{nullptr, {n}};
  return int64_t(radix_sort(nullptr, 0, {any, any, {}, any, any, INT32_MAX}, nullptr));
}

void sort_pairs(Exec on, const SortPairs& a) {
  radix_sort(a.scratch.data, size_t(a.scratch.size()), a,
             static_cast<cudaStream_t>(on.gpu->stream));
}

}  // namespace assay::by_cub
