// The norm of all gradients together and the factor that clips it. Both stay in the memory of the
// device that holds the gradients.
//
//   norm = sqrt(sum over all tensors of g^2)       clip = norm > max_norm > 0 ? max_norm / norm : 1
//
// A NaN or an infinity makes norm NaN or infinite (clip 1 or 0) and is counted: check non_finite
// before using the step. Squares are summed in double in a fixed order: within pieces of 16384
// elements, then over the pieces. Reference: tests/ref/global_norm.h.
//
// Ranks that share the gradients call the two halves of it: square_sums of the pieces that each
// owns, then, when all have the rows of all, norm_of_squares. The results have the bits of
// global_norm on one rank.
#pragma once

#include <cstdint>

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

// An array of views in host memory, e.g. of a std::vector.
using GradientList = View<const View<const float, 1>, 1>;

inline constexpr int64_t kNormPiece = 16384;

// A gradient may be a part of a tensor: pieces of kNormPiece elements, with or without the shorter
// last one. Its rows are then those of the whole tensor for these pieces, to the bit; on a GPU both
// must begin at multiples of 16 bytes for that.
struct SquareSums {
  View<double, 2> partial;  // out (global_norm_pieces(grads), 2)   squares, non-finite elements
  GradientList grads;       // in
};

// Adds the rows of `partial`, in their order.
struct NormOfSquares {
  View<float, 1> norm;            // out (1)
  View<float, 1> clip;            // out (1)
  View<int64_t, 1> non_finite;    // out (1)   elements that are NaN or infinite
  View<const double, 2> partial;  // in  (R, 2)   rows of square_sums
  double max_norm = 0;            // 0: no clipping
};

// square_sums, then norm_of_squares.
struct GlobalNorm {
  View<float, 1> norm;          // out (1)
  View<float, 1> clip;          // out (1)
  View<int64_t, 1> non_finite;  // out (1)   elements that are NaN or infinite
  View<double, 2> partial;      // tmp (global_norm_pieces(grads), 2)   squares, non-finite elements
  GradientList grads;           // in
  double max_norm = 0;          // 0: no clipping
};

void square_sums(Exec on, const SquareSums& a);
void norm_of_squares(Exec on, const NormOfSquares& a);
void global_norm(Exec on, const GlobalNorm& a);
// Rows of `partial`: the pieces of each gradient, one gradient after the other.
int64_t global_norm_pieces(GradientList grads);

inline double gradient_elements(GradientList grads) {
  double elements = 0;
  for (int64_t i = 0; i < grads.dim[0]; ++i) elements += double(grads[i].size());
  return elements;
}
inline Cost square_sums_cost(const SquareSums& a) {
  const double elements = gradient_elements(a.grads);
  return {.bytes = 4 * elements + view_bytes(a.partial), .flops = 2 * elements};
}
inline Cost norm_of_squares_cost(const NormOfSquares& a) {
  return {.bytes = view_bytes(a.partial, a.norm, a.clip, a.non_finite),
          .flops = double(a.partial.size())};
}
// Operations on the squares only: the rest is nothing beside them.
inline Cost global_norm_cost(const GlobalNorm& a) {
  const double elements = gradient_elements(a.grads);
  return {.bytes = 4 * elements + view_bytes(a.norm, a.clip, a.non_finite), .flops = 2 * elements};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (global_norm.cu).
namespace gpu {
void square_sums(Exec on, const SquareSums& a);
void norm_of_squares(Exec on, const NormOfSquares& a);
}  // namespace gpu

}  // namespace assay
