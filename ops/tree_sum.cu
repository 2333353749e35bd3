#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/tree_sum.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;
constexpr int kGroup = 8;  // rows whose loads are in flight together
// Sums of 2^l groups wait in level l for their other half, as carries do in binary addition.
constexpr int kLevels = 9;
static_assert(int64_t{kGroup} << kLevels == kMostTreeRows);

template <int N>
GPU_DEVICE Vec<float, N> sum_of(const Vec<float, N>& left, const Vec<float, N>& right) {
  Vec<float, N> sum;
  for (int e = 0; e < N; ++e) sum[e] = left[e] + right[e];
  return sum;
}

// The tree of rows [kFirst, kFirst + kRows) of a group of which only the first `rows` exist.
template <int kFirst, int kRows, int N>
GPU_DEVICE Vec<float, N> tree(const Vec<float, N> (&row)[kGroup], int rows) {
  if constexpr (kRows == 1) {
    return row[kFirst];
  } else {
    constexpr int kHalf = kRows / 2;
    const Vec<float, N> left = tree<kFirst, kHalf>(row, rows);
    if (kFirst + kHalf >= rows) return left;
    return sum_of(left, tree<kFirst + kHalf, kHalf>(row, rows));
  }
}
// The same of rows in memory, which begin `stride` elements after each other.
template <int N>
GPU_DEVICE Vec<float, N> group_sum(const float* p, int64_t stride, int rows) {
  Vec<float, N> row[kGroup] = {};
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    if (r < rows) row[r] = load_vec<N>(p + r * stride);
  }
  return tree<0, kGroup>(row, rows);
}

// Adds the sum of group number `group` to those that wait for it; the result waits in its level.
//
// Recursion, so that every index is known to the compiler and levels are registers. Not a loop with
// `#pragma unroll`: GCC 12, which compiles this for the emulator, makes vectors of a loop that adds
// floats under a condition. Where the condition is false it adds 0, which turns -0 into 0.
template <int kLevel, int kSize, int N>
GPU_DEVICE void carry(Vec<float, N> (&waiting)[kSize], const Vec<float, N>& sum, int group) {
  if constexpr (kLevel < kSize) {
    if ((group >> kLevel & 1) == 0) {
      waiting[kLevel] = sum;
    } else {
      carry<kLevel + 1>(waiting, sum_of(waiting[kLevel], sum), group);
    }
  }
}
// Adds the sum of the last group to all that wait, the latest first.
template <int kLevel, int kSize, int N>
GPU_DEVICE Vec<float, N> carry_last(const Vec<float, N> (&waiting)[kSize], const Vec<float, N>& sum,
                                    int group) {
  if constexpr (kLevel == kSize) {
    return sum;
  } else {
    const bool waits = (group >> kLevel & 1) != 0;
    return carry_last<kLevel + 1>(waiting, waits ? sum_of(waiting[kLevel], sum) : sum, group);
  }
}

// Each thread owns N adjacent elements of all rows. Bound by memory: every row is read once, `to`
// is written once. Without kManyGroups, for up to kGroup rows, there are no levels, and half the
// registers.
template <int N, bool kManyGroups>
__global__ __launch_bounds__(kThreads) void tree_sum_kernel(const __grid_constant__ TreeSum a) {
  const int64_t n = a.to.dim[0];
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= n) return;
  const float* p = a.from.data + i;
  const int rows = int(a.from.dim[0]);
  if constexpr (kManyGroups) {
    const int last = (rows - 1) / kGroup;  // number of the last group, which has 1 to kGroup rows
    Vec<float, N> waiting[kLevels] = {};
    for (int group = 0; group < last; ++group, p += kGroup * n) {
      carry<0>(waiting, group_sum<N>(p, n, kGroup), group);
    }
    const Vec<float, N> sum = group_sum<N>(p, n, rows - last * kGroup);
    store_whole<N>(a.to.data + i, carry_last<0>(waiting, sum, last));
  } else {
    store_whole<N>(a.to.data + i, group_sum<N>(p, n, rows));
  }
}

template <int N>
void launch_tree_sum(Exec on, const TreeSum& a) {
  launch(on,
         {.name = "tree_sum",
          .grid = {unsigned(ceil_div(a.to.dim[0], int64_t{kThreads} * N))},
          .block = {kThreads}},
         a.from.dim[0] <= kGroup ? tree_sum_kernel<N, false> : tree_sum_kernel<N, true>, a);
}

}  // namespace

void tree_sum(Exec on, const TreeSum& a) {
  const int64_t n = a.to.dim[0];
  if (n == 0) return;
  if (in_vectors(a.to.data, n) && in_vectors(a.from.data, n)) {
    launch_tree_sum<kFour>(on, a);
  } else {
    launch_tree_sum<1>(on, a);
  }
}

}  // namespace assay::gpu
