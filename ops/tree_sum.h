// The sum of D arrays in a balanced binary tree:
//
//   to_i = sum(0, D)_i
//   sum(r, r + 1)_i = from_r,i       sum(a, b)_i = sum(a, m)_i + sum(m, b)_i
//
// with m = a + the largest power of two below b - a. Each sum is rounded to float. This is the tree
// in which engine/part_sums.h adds the parts of a batch one after the other, here of parts that are
// all there, as those that ranks send each other. Both give the same bits; only which NaN a NaN is
// may differ. `to` may be a row of `from`. Reference: tests/ref/tree_sum.h.
#pragma once

#include <cstdint>

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

inline constexpr int64_t kMostTreeRows = 4096;

struct TreeSum {
  View<float, 1> to;          // out (n)
  View<const float, 2> from;  // in  (D, n)   D from 1 to kMostTreeRows
};

void tree_sum(Exec on, const TreeSum& a);

inline Cost tree_sum_cost(const TreeSum& a) {
  return {.bytes = view_bytes(a.from, a.to),
          .flops = double(a.from.dim[0] - 1) * double(a.to.dim[0])};
}

// The CUDA body, which the function above calls where `on` has a GPU (tree_sum.cu).
namespace gpu {
void tree_sum(Exec on, const TreeSum& a);
}  // namespace gpu

}  // namespace assay
