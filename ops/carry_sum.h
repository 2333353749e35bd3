// Adds up arrays that became ready one after the other, the latest first:
//
//   to_i = ((own_i + earlier_0,i) + earlier_1,i) + ...
//
// With it the gradients of the parts of a batch are summed in a balanced binary tree
// (engine/part_sums.h). Each sum is rounded to T. `to` may be `own` or one of `earlier`. Reference:
// tests/ref/carry_sum.h.
#pragma once

#include <array>
#include <cstdint>

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

inline constexpr int kMostCarried = 16;

template <typename T>
struct CarrySum {
  View<T, 1> to;                                            // out (n)
  View<const T, 1> own;                                     // in  (n)
  std::array<View<const T, 1>, kMostCarried> earlier = {};  // in  (n) each, the first `carried`
  int carried = 0;                                          // 0: to = own
};

// T: float, or int64_t.
template <typename T>
void carry_sum(Exec on, const CarrySum<T>& a);

template <typename T>
Cost carry_sum_cost(const CarrySum<T>& a) {
  return {.bytes = view_bytes(a.to) * (2 + a.carried), .flops = double(a.to.dim[0]) * a.carried};
}

// The CUDA bodies, which the function above calls where `on` has a GPU (carry_sum.cu).
namespace gpu {
void carry_sum(Exec on, const CarrySum<float>& a);
void carry_sum(Exec on, const CarrySum<int64_t>& a);
}  // namespace gpu

}  // namespace assay
