// The norm of all gradients together and the factor that clips it. Both stay in the memory of the
// device that holds the gradients.
//
//   norm = sqrt(sum over all tensors of g^2)       clip = norm > max_norm > 0 ? max_norm / norm : 1
//
// A NaN or an infinity makes norm NaN or infinite (clip 1 or 0) and is counted: check non_finite
// before using the step. Squares are summed in double in a fixed order: within pieces of 16384
// elements, then over the pieces. Reference: tests/ref/global_norm.h.
#pragma once

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

// An array of views in host memory, e.g. of a std::vector.
using GradientList = View<const View<const float, 1>, 1>;

struct GlobalNorm {
  View<float, 1> norm;          // out (1)
  View<float, 1> clip;          // out (1)
  View<int64_t, 1> non_finite;  // out (1)   elements that are NaN or infinite
  View<double, 2> partial;      // tmp (global_norm_pieces(grads), 2)   squares, non-finite elements
  GradientList grads;           // in
  float max_norm = 0.0f;        // 0: no clipping
};

void global_norm(Exec on, const GlobalNorm& a);
// Rows of GlobalNorm::partial.
int64_t global_norm_pieces(GradientList grads);

inline Cost global_norm_cost(const GlobalNorm& a) {
  double elements = 0;
  for (int64_t i = 0; i < a.grads.dim[0]; ++i) elements += double(a.grads[i].size());
  return {.bytes = 4 * elements, .flops = 2 * elements};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (global_norm.cu).
namespace gpu {
void global_norm(Exec on, const GlobalNorm& a);
}  // namespace gpu

}  // namespace assay
