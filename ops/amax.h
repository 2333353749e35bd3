// The largest magnitude of a matrix, and of its 16-point random Hadamard transform along the axis
// of the rows, from one read.
//
//   amax = max |x|        rotated = max |y|, y as in ops/hadamard.h before it is rounded to T
//
// The maximum is over bit patterns, so the order does not matter. Infinity and NaN (one pattern,
// above infinity) propagate. Without rows the result is 0.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct Amax {
  View<float, 1> amax;          // out (1)
  View<float, 1> rotated = {};  // out (1)   optional
  View<const T, 2> x;           // in  (R, C)
  uint32_t signs = 0;           // of the rotation, 16 bits
};

template <typename T>
void amax(Exec on, const Amax<T>& a);

template <typename T>
Cost amax_cost(const Amax<T>& a) {
  const double each = a.rotated.empty() ? 1 : 8;
  return {.bytes = view_bytes(a.x, a.amax, a.rotated), .flops = each * double(a.x.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (amax.cu).
namespace gpu {
void amax(Exec on, const Amax<float>& a);
void amax(Exec on, const Amax<bf16>& a);
}  // namespace gpu

}  // namespace assay
