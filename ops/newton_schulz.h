// Orthogonalises a stack of matrices approximately, each on its own, by Newton-Schulz iterations of
// the fifth order (the polynomial of Muon, K. Jordan 2024: it lifts small singular values quickly
// and leaves all of them near 1, between about 0.7 and 1.2):
//
//   X <- X / max(|X|_F, 1e-7)
//   steps times:   A = X X^T     B = b A + c A A     X <- a X + B X
//   (a, b, c) = (3.4445, -4.7750, 2.0315)
//
// If rows > cols: A = X^T X and X <- a X + X B, the same values without a transposed copy, and A is
// never larger than min(rows, cols) squared.
//
// All tensors are bf16. Products are those of ops/grouped_linear.h: sums in float, rounded once.
// The norm is summed in double, piece by piece. Nothing depends on the number of threads.
// FLOPs: per matrix and iteration 2 m^2 (2 k + m), m = min(rows, cols), k = max(rows, cols).
// Reference: tests/ref/newton_schulz.h.
#pragma once

#include <algorithm>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/math.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

struct NewtonSchulz {
  View<bf16, 3> x;                      // acc (n, rows, cols)
  View<bf16, 3> product;                // tmp (n, rows, cols)
  View<bf16, 3> gram;                   // tmp (n, m, m)   A, then B
  View<bf16, 3> square;                 // tmp (n, m, m)   A A
  View<float, 3> gram_sums = {};        // tmp (n, m, m)   if rows > cols
  View<double, 2> partial;              // tmp (n, newton_schulz_pieces(rows * cols))
  View<int32_t, 2> offsets;             // tmp (2, n + 1)   of the rows of x and of gram
  View<std::byte, 1> packed_x = {};     // tmp on the CPU, if rows <= cols: newton_schulz_packed_x()
  View<std::byte, 1> packed_gram = {};  // tmp on the CPU: newton_schulz_packed_gram()
  int64_t steps = 5;
};

inline constexpr double kNewtonSchulzA = 3.4445, kNewtonSchulzB = -4.7750, kNewtonSchulzC = 2.0315;
inline constexpr double kNewtonSchulzEps = 1e-7;
inline constexpr int64_t kNewtonSchulzPiece = 16384;  // elements of one partial sum
constexpr int64_t newton_schulz_pieces(int64_t elements) {
  return ceil_div(elements, kNewtonSchulzPiece);
}

// on.workspace must have newton_schulz_workspace_bytes().
void newton_schulz(Exec on, const NewtonSchulz& a);
int64_t newton_schulz_workspace_bytes(Backend backend, int64_t n, int64_t rows, int64_t cols);
// Bytes of packed_x and packed_gram on the CPU.
int64_t newton_schulz_packed_x(int64_t n, int64_t rows, int64_t cols);
int64_t newton_schulz_packed_gram(int64_t n, int64_t rows, int64_t cols);

// x is read and written; what stands between two products is scratch.
inline Cost newton_schulz_cost(const NewtonSchulz& a) {
  const double m = double(std::min(a.x.dim[1], a.x.dim[2]));
  const double k = double(std::max(a.x.dim[1], a.x.dim[2]));
  const double n = double(a.x.dim[0]), steps = double(a.steps);
  return {.bytes = 2 * view_bytes(a.x), .flops = steps * n * 2 * m * m * (2 * k + m)};
}

// The parts between the products.
struct NewtonSchulzNorm {
  View<double, 2> partial;   // out (n, pieces)   sums of squares
  View<int32_t, 2> offsets;  // out (2, n + 1)
  View<const bf16, 3> x;     // in  (n, rows, cols)
};
struct NewtonSchulzScale {
  View<bf16, 3> x;                // acc (n, rows, cols)   divided by the root of its sum
  View<const double, 2> partial;  // in  (n, pieces)
};
struct NewtonSchulzCombine {
  View<bf16, 1> x;        // acc (n)   a x + b y
  View<const bf16, 1> y;  // in  (n)
  float a, b;
};

// The CUDA bodies, which newton_schulz() calls where `on` has a GPU (newton_schulz.cu).
namespace gpu {
void newton_schulz_norm(Exec on, const NewtonSchulzNorm& a);
void newton_schulz_scale(Exec on, const NewtonSchulzScale& a);
void newton_schulz_combine(Exec on, const NewtonSchulzCombine& a);
}  // namespace gpu

}  // namespace assay
