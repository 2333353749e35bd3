// Sparse linear: backward of a linear layer z = x W^T where only K columns of each row of dz are
// not zero, as in the router if only the chosen logits have gradient (router_backward_is_sparse).
//
//   dx[t]  = add[t] + sum_k dz[t,k] W[expert[t,k]]
//   dW[e] += sum of dz[t,k] x[t] over the assignments (t, k) of e
//
// dz is first rounded to T, as the dense products of ops/linear.h read it: only the order of the
// sums differs from theirs. Sums are in float, on the CPU in token order, on a GPU of every eighth
// token and then of the eight. The work is K / E of theirs, and nothing of size (N, E) is written.
//
// Reference: tests/ref/linear.h on the dense dz.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct SparseLinearBackward {
  View<T, 2> dx;                   // out (N, C)
  View<float, 2> dweight;          // acc (E, C)
  View<const float, 2> dz;         // in  (N, K)
  View<const int32_t, 2> expert;   // in  (N, K)   distinct within a row
  View<const int32_t, 1> offsets;  // in  (E + 1)  of ops/dispatch.h
  View<const int32_t, 1> token;    // in  (N K)    of ops/dispatch.h
  View<const T, 2> x;              // in  (N, C)
  View<const T, 2> weight;         // in  (E, C)
  View<const T, 2> add = {};       // in  (N, C)   optional; may be dx itself
};

template <typename T>
void sparse_linear_backward(Exec on, const SparseLinearBackward<T>& a);

// True if the dense products would cost more on `on`. On a CPU they reach 20 to 30 times the flops
// per second. On a GPU they take 4 E flops a token and column at 650 TFLOP/s, and move 6 E / C
// bytes at 3.9 TB/s: 8.2 E fs at C = 768. This op reads 4 K bytes, of weights and of x, at 4.5
// TB/s: 890 K fs, which is less from E = 109 K on (computed, not measured).
bool sparse_linear_pays(Exec on, int64_t experts, int64_t top_k);
bool sparse_linear_pays_on_gpu(int64_t experts, int64_t top_k);

// Each matrix once, of the weight and its gradient the rows that the experts choose.
template <typename T>
Cost sparse_linear_backward_cost(const SparseLinearBackward<T>& a) {
  return {.bytes = view_bytes(a.dx, a.add, a.dz, a.x, a.expert, a.offsets, a.token) +
                   chosen_bytes(a.weight, a.dz.size()) + 2 * chosen_bytes(a.dweight, a.dz.size()),
          .flops = 4.0 * double(a.dz.size()) * double(a.x.dim[1])};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (sparse_linear.cu).
namespace gpu {
void sparse_linear_backward(Exec on, const SparseLinearBackward<float>& a);
void sparse_linear_backward(Exec on, const SparseLinearBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
