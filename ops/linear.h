// The linear layer: one dense matrix product forward, two backward. Weights are (out, in).
//
//   y[n,o]   = scale sum_i x[n,i] W[o,i] + add[n,o]
//   dx[n,i]  = scale sum_o dy[n,o] W[o,i] + add[n,i]
//   dW[o,i] += scale sum_n dy[n,o] x[n,i]              or =, with GradientSum::kStore
//
// Sums are in float whatever T is and are rounded to the output's type once, after the addition (a
// GPU that adds in place also rounds the product first). On the CPU a row of y or dx has the same
// bits whatever the other rows are, and dW continues the sum that it holds: rows given in two calls
// (the first with a multiple of 32 rows) have the same bits as in one. With a scale
// (ops/product_scale.h) it does not: the scale multiplies sums that start from 0 in every call, or
// in every part of a call with many rows. Nothing depends on the number of threads. Rounding of
// bf16 products: ops/cpu_gemm/gemm.h. Reference: tests/ref/linear.h.
//
// The calls allocate nothing; on.workspace must have linear_workspace_bytes().
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/product_scale.h"
#include "ops/weight_matrix.h"

namespace assay {

// Y: T, or float where T is bf16 (router logits).
template <typename T, typename Y = T>
struct LinearForward {
  View<Y, 2> y;               // out (N, out)
  View<const T, 2> x;         // in  (N, in)
  WeightMatrix<T> weight;     // in  (out, in)
  View<const Y, 2> add = {};  // in  (N, out)   optional; may be y itself
  ProductScale scale = {};    // in             optional
};

template <typename T>
struct LinearDgrad {
  View<T, 2> dx;              // out (N, in)
  View<const T, 2> dy;        // in  (N, out)
  WeightMatrix<T> weight;     // in  (out, in)
  View<const T, 2> add = {};  // in  (N, in)    optional; may be dx itself
  ProductScale scale = {};    // in             optional
};

template <typename T>
struct LinearWgrad {
  View<float, 2> dweight;   // acc (out, in)   with kStore: out
  View<const T, 2> dy;      // in  (N, out)
  View<const T, 2> x;       // in  (N, in)
  ProductScale scale = {};  // in              optional
  GradientSum sum = GradientSum::kAdd;
};

template <typename T, typename Y = T>
void linear_forward(Exec on, const LinearForward<T, Y>& a);
template <typename T>
void linear_dgrad(Exec on, const LinearDgrad<T>& a);
template <typename T>
void linear_wgrad(Exec on, const LinearWgrad<T>& a);

// Bytes of on.workspace that each of the three needs.
template <typename T>
int64_t linear_workspace_bytes(Backend backend, int64_t rows, int64_t in);

// Two flops per multiply-add; each matrix is read or written once, dW both unless it is stored.
template <typename T, typename Y>
Cost linear_forward_cost(const LinearForward<T, Y>& a) {
  return {.bytes = view_bytes(a.y, a.x, a.weight.plain, a.add, a.scale),
          .flops = 2.0 * double(a.x.dim[0]) * double(a.weight.plain.size())};
}
template <typename T>
Cost linear_dgrad_cost(const LinearDgrad<T>& a) {
  return {.bytes = view_bytes(a.dx, a.dy, a.weight.plain, a.add, a.scale),
          .flops = 2.0 * double(a.dy.dim[0]) * double(a.weight.plain.size())};
}
template <typename T>
Cost linear_wgrad_cost(const LinearWgrad<T>& a) {
  const double times = a.sum == GradientSum::kStore ? 1.0 : 2.0;
  return {.bytes = times * view_bytes(a.dweight) + view_bytes(a.dy, a.x, a.scale),
          .flops = 2.0 * double(a.dy.dim[0]) * double(a.dweight.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (linear.cu).
namespace gpu {
void linear_forward(Exec on, const LinearForward<float>& a);
void linear_forward(Exec on, const LinearForward<bf16>& a);
void linear_forward(Exec on, const LinearForward<bf16, float>& a);
void linear_dgrad(Exec on, const LinearDgrad<float>& a);
void linear_dgrad(Exec on, const LinearDgrad<bf16>& a);
void linear_wgrad(Exec on, const LinearWgrad<float>& a);
void linear_wgrad(Exec on, const LinearWgrad<bf16>& a);
}  // namespace gpu

}  // namespace assay
