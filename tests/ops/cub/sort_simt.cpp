// CUB's sort for the SIMT emulator.
#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"
#include "tests/ops/cub/by_cub.h"

namespace assay::by_cub {

namespace {

void stable_sort(const SortPairs& a) {
  std::vector<int64_t> order(size_t(a.keys.dim[0]));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return a.keys[i] < a.keys[j]; });
  for (int64_t to = 0; to < a.keys.dim[0]; ++to) {
    a.key[to] = a.keys[order[size_t(to)]];
    a.value[to] = a.values[order[size_t(to)]];
  }
}

}  // namespace

int64_t sort_pairs_scratch_bytes(int64_t) {
  return 1;
}

// A grid of one thread, because only kernels may access device memory.
void sort_pairs(Exec on, const SortPairs& a) {
  simt::enqueue(simt::stream_of(on), [a] {
    simt::run_grid("sort_pairs", {1, 1, 1}, {1, 1, 1}, 0, [&] { stable_sort(a); });
  });
}

}  // namespace assay::by_cub
