// The 16-point random Hadamard transform along the axis of the rows (tokens), with the largest
// magnitude of its output.
//
//   kForward   y[16 g + i, c] = (1/4) sum_j H16[i][j] (+-)x[16 g + j, c]
//   kInverse   y[16 g + j, c] = (+-)(1/4) sum_i H16[i][j] x[16 g + i, c]
//
// Signs and order of the sums: ops/quantise/hadamard16.h. Rows past the end of x count as 0.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise/hadamard16.h"

namespace assay {

template <typename T>
struct Hadamard {
  View<T, 2> y;              // out (R padded to 16, C)
  View<float, 1> amax = {};  // out (1)   max |y| as stored; optional
  View<const T, 2> x;        // in  (R, C)
  uint32_t signs = 0;        // 16 bits
  HadamardWay way = HadamardWay::kForward;
};

template <typename T>
void hadamard(Exec on, const Hadamard<T>& a);

template <typename T>
Cost hadamard_cost(const Hadamard<T>& a) {
  return {.bytes = view_bytes(a.x, a.y, a.amax), .flops = 8.0 * double(a.x.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (hadamard.cu).
namespace gpu {
void hadamard(Exec on, const Hadamard<float>& a);
void hadamard(Exec on, const Hadamard<bf16>& a);
}  // namespace gpu

}  // namespace assay
