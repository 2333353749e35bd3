// Sums expert outputs by token, through the inverse permutation of ops/dispatch.h. The A = N K
// slots are sorted by expert.
//
//   combine    y[t] = add[t] + resid[t] + sum_k gate[t,k] * expert_out[slot(t,k)]
//   backward   dexpert_out[slot(t,k)] = gate[t,k] * dy[t]
//              dgate[t,k] = <dy[t], expert_out[slot(t,k)]>
//   reduce     dx[t] = add[t] + sum_k dexpert_in[slot(t,k)]     backward of gathering expert inputs
//
// Each token adds in the order k = 0, 1, ..., so the sum does not depend on the loads. A gate of
// zero saves no work. Sums are in float whatever T is. Reference: tests/ref/combine.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct CombineForward {
  View<T, 2> y;                 // out (N, C)
  View<const T, 2> expert_out;  // in  (A, C)
  View<const int32_t, 2> slot;  // in  (N, K)
  View<const float, 2> gate;    // in  (N, K)
  View<const T, 2> add = {};    // in  (N, C)   output of the shared experts; optional; may be y
  View<const T, 2> resid = {};  // in  (N, C)   residual stream before the experts; optional
};

template <typename T>
struct CombineBackward {
  View<T, 2> dexpert_out;    // out (A, C)
  View<float, 2> dgate;      // out (N, K)
  View<float, 1> amax = {};  // acc (1)   amax slot: raised to max |dexpert_out| as stored; optional
  View<const T, 2> dy;       // in  (N, C)
  View<const T, 2> expert_out;  // in  (A, C)
  View<const int32_t, 2> slot;  // in  (N, K)
  View<const float, 2> gate;    // in  (N, K)
};

template <typename T>
struct ReduceByToken {
  View<T, 2> dx;                // out (N, C)
  View<const T, 2> dexpert_in;  // in  (A, C)
  View<const int32_t, 2> slot;  // in  (N, K)
  View<const T, 2> add = {};    // in  (N, C)   optional; may be dx
};

template <typename T>
void combine_forward(Exec on, const CombineForward<T>& a);
template <typename T>
void combine_backward(Exec on, const CombineBackward<T>& a);
template <typename T>
void reduce_by_token(Exec on, const ReduceByToken<T>& a);

template <typename T>
Cost combine_forward_cost(const CombineForward<T>& a) {
  return {.bytes = view_bytes(a.y, a.expert_out, a.add, a.resid, a.slot, a.gate),
          .flops = 2.0 * double(a.expert_out.size())};
}
template <typename T>
Cost combine_backward_cost(const CombineBackward<T>& a) {
  return {.bytes = view_bytes(a.dy, a.slot) + 2 * view_bytes(a.expert_out, a.gate, a.amax),
          .flops = 3.0 * double(a.expert_out.size())};
}
template <typename T>
Cost reduce_by_token_cost(const ReduceByToken<T>& a) {
  return {.bytes = view_bytes(a.dx, a.dexpert_in, a.add, a.slot),
          .flops = double(a.dexpert_in.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (combine.cu).
namespace gpu {
void combine_forward(Exec on, const CombineForward<float>& a);
void combine_forward(Exec on, const CombineForward<bf16>& a);
void combine_backward(Exec on, const CombineBackward<float>& a);
void combine_backward(Exec on, const CombineBackward<bf16>& a);
void reduce_by_token(Exec on, const ReduceByToken<float>& a);
void reduce_by_token(Exec on, const ReduceByToken<bf16>& a);
}  // namespace gpu

}  // namespace assay
