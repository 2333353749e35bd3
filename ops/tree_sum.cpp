#include "ops/tree_sum.h"

#include <bit>

#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kBlock = 1024;  // elements whose sums wait in the first cache
constexpr int kGroup = 8;         // rows that are read together and added in registers
// Sums of 2^l groups wait in level l for their other half, as carries do in binary addition.
constexpr int kLevels = 9;
static_assert(int64_t{kGroup} << kLevels == kMostTreeRows);

// The tree of kRows adjacent rows, which begin `stride` elements after each other.
template <int kRows, typename Count>
[[gnu::always_inline]] inline f32x16 tree(const float* row, int64_t stride, Count count) {
  if constexpr (kRows == 1) {
    return load(row, count);
  } else {
    constexpr int kLeft = std::bit_floor(unsigned(kRows - 1));
    const f32x16 left = tree<kLeft>(row, stride, count);
    return left + tree<kRows - kLeft>(row + kLeft * stride, stride, count);
  }
}

struct Waiting {
  alignas(64) float sum[kLevels][kBlock];
};

// to = the tree of kRows rows, after the sums that wait in `levels` (a bit each), the latest first.
// `to` is a level, or the result.
template <int kRows>
void add_group(float* to, const float* row, int64_t stride, int64_t n, const Waiting& waiting,
               uint32_t levels) {
  for_vectors(n, [&](int64_t i, auto count) {
    f32x16 sum = tree<kRows>(row + i, stride, count);
    for (uint32_t left = levels; left != 0; left &= left - 1) {
      sum = load(waiting.sum[std::countr_zero(left)] + i, count) + sum;
    }
    store(to + i, sum, count);
  });
}

constexpr decltype(&add_group<1>) kAddGroup[kGroup] = {add_group<1>, add_group<2>, add_group<3>,
                                                       add_group<4>, add_group<5>, add_group<6>,
                                                       add_group<7>, add_group<8>};

}  // namespace

namespace cpu {

void tree_sum(Exec on, const TreeSum& a) {
  const int64_t stride = a.from.dim[1];
  // The last group has 1 to kGroup rows. It takes all levels that are left: those set in the number
  // of groups before it.
  const auto groups_before = uint32_t((a.from.dim[0] - 1) / kGroup);
  const int64_t rows_of_last = a.from.dim[0] - int64_t{groups_before} * kGroup;
  parallel_ranges(on, stride, kBlock, [&](int64_t begin, int64_t end) {
    Waiting waiting;
    const float* row = a.from.data + begin;
    for (uint32_t group = 0; group < groups_before; ++group, row += kGroup * stride) {
      const int first_empty = std::countr_one(group);
      const uint32_t below = (1u << first_empty) - 1;
      add_group<kGroup>(waiting.sum[first_empty], row, stride, end - begin, waiting, below);
    }
    kAddGroup[rows_of_last - 1](a.to.data + begin, row, stride, end - begin, waiting,
                                groups_before);
  });
}

}  // namespace cpu

void tree_sum(Exec on, const TreeSum& a) {
  const ProfileScope timed(on, "tree_sum", tree_sum_cost(a));
  CHECK(a.from.dim[0] >= 1 && a.from.dim[0] <= kMostTreeRows && a.from.dim[1] == a.to.dim[0],
        "tree_sum: %s", shapes("to", a.to, "from", a.from).c_str());
  if (on.gpu) return gpu::tree_sum(on, a);
  cpu::tree_sum(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(tree_sum, TreeSum)
}  // namespace gpu

}  // namespace assay
