// The linear layers of all experts in one call, over ragged segments of rows.
//
//   expert e owns assignments offsets[e] <= a < offsets[e+1];  r = row[a], or a without `row`
//   y[a,o]     = scale sum_i x[r,i] W[e,o,i]
//   dx[a,i]    = scale sum_o dy[a,o] W[e,o,i]
//   dW[e,o,i] += scale sum_a dy[a,o] x[r,i]            or =, with GradientSum::kStore
//
// Rows are gathered inside the product, without a copy. Sums, scale and rounding are those of
// ops/linear.h: a row does not depend on its neighbours, and nothing depends on the number of
// threads. An expert without rows costs nothing, unless its dW
// is stored. A GPU may take the old and the new dW, and what is
// added, as zero where they are subnormal. Reference: tests/ref/grouped_linear.h.
//
// A GPU multiplies bf16 on tensor cores where out and in are multiples of 8 and the matrices begin
// at multiples of 16 bytes; else by plain multiplications, many times slower.
//
// The calls allocate nothing; on.workspace must have grouped_workspace_bytes().
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/product_scale.h"
#include "ops/weight_matrix.h"

namespace assay {

template <typename T>
struct GroupedForward {
  View<T, 2> y;                     // out (A, out)
  View<const T, 2> x;               // in  (rows, in)
  View<const int32_t, 1> row = {};  // in  (A)     row of x for each assignment; empty: rows = A
  View<const int32_t, 1> offsets;   // in  (E+1)   assignments sorted by expert
  WeightStack<T> weight;            // in  (E, out, in)
  ProductScale scale = {};          // in          optional
};

template <typename T>
struct GroupedDgrad {
  View<T, 2> dx;                   // out (A, in)
  View<const T, 2> dy;             // in  (A, out)
  View<const int32_t, 1> offsets;  // in  (E+1)   empty: E = 1, which has all rows
  WeightStack<T> weight;           // in  (E, out, in)
  ProductScale scale = {};         // in          optional
};

template <typename T>
struct GroupedWgrad {
  View<float, 3> dweight;           // acc (E, out, in)   with kStore: out
  View<const T, 2> dy;              // in  (A, out)
  View<const T, 2> x;               // in  (rows, in)
  View<const int32_t, 1> row = {};  // in  (A)     as in forward
  View<const int32_t, 1> offsets;   // in  (E+1)
  ProductScale scale = {};          // in          optional
  GradientSum sum = GradientSum::kAdd;
  int64_t most_rows = INT64_MAX;  // that an expert has; few need less workspace
};

template <typename T>
void grouped_linear_forward(Exec on, const GroupedForward<T>& a);
template <typename T>
void grouped_linear_dgrad(Exec on, const GroupedDgrad<T>& a);
template <typename T>
void grouped_linear_wgrad(Exec on, const GroupedWgrad<T>& a);

// Bytes of on.workspace that each of the three needs, whatever the loads; with GroupedWgrad's
// most_rows, loads up to that.
template <typename T>
int64_t grouped_workspace_bytes(Backend backend, int64_t assignments, int64_t experts, int64_t out,
                                int64_t in, int64_t most_rows = INT64_MAX);

// Two flops per multiply-add; each matrix is read or written once, of x the rows that are gathered,
// dW both unless it is stored.
template <typename T>
Cost grouped_linear_forward_cost(const GroupedForward<T>& a) {
  return {.bytes = view_bytes(a.y, a.weight.plain, a.row, a.offsets, a.scale) +
                   chosen_bytes(a.x, a.y.dim[0]),
          .flops = 2.0 * double(a.y.size()) * double(a.x.dim[1])};
}
template <typename T>
Cost grouped_linear_dgrad_cost(const GroupedDgrad<T>& a) {
  return {.bytes = view_bytes(a.dx, a.dy, a.weight.plain, a.offsets, a.scale),
          .flops = 2.0 * double(a.dy.size()) * double(a.dx.dim[1])};
}
template <typename T>
Cost grouped_linear_wgrad_cost(const GroupedWgrad<T>& a) {
  const double times = a.sum == GradientSum::kStore ? 1.0 : 2.0;
  return {.bytes = times * view_bytes(a.dweight) + view_bytes(a.dy, a.row, a.offsets, a.scale) +
                   chosen_bytes(a.x, a.dy.dim[0]),
          .flops = 2.0 * double(a.dy.size()) * double(a.x.dim[1])};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (grouped_linear.cu).
namespace gpu {
void grouped_linear_forward(Exec on, const GroupedForward<float>& a);
void grouped_linear_forward(Exec on, const GroupedForward<bf16>& a);
void grouped_linear_dgrad(Exec on, const GroupedDgrad<float>& a);
void grouped_linear_dgrad(Exec on, const GroupedDgrad<bf16>& a);
void grouped_linear_wgrad(Exec on, const GroupedWgrad<float>& a);
void grouped_linear_wgrad(Exec on, const GroupedWgrad<bf16>& a);
}  // namespace gpu

}  // namespace assay
