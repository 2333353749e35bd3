// The experts' FFN around its activation: the first product followed by SwiGLU, and the dgrad of
// the second product followed by the gradient of SwiGLU. Rows, experts and offsets are those of
// ops/grouped_linear.h, the activation is that of ops/swiglu.h.
//
//   forward   gate_up[a] = scale x[r] W1[e]^T     h[a] = swiglu(gate_up[a]), of the rounded gate_up
//   dgrad     dh[a] = scale dy[a] W2[e]           dgate_up[a] = swiglu'(gate_up[a]) dh[a]
//
// The results are those of the two steps, except that dgrad may leave dh unrounded between them. On
// a GPU, in bf16 with widths that are multiples of 8, each is one kernel: gate_up is not read again
// after the product (forward), dh is never written (dgrad). Reference: tests/ref/grouped_linear.h,
// then tests/ref/swiglu.h.
#pragma once

#include "base/bf16.h"
#include "ops/grouped_linear.h"

namespace assay {

template <typename T>
struct GroupedSwigluForward {
  View<T, 2> h;              // out (A, F)
  View<T, 2> gate_up;        // out (A, 2F)   [gate | up]
  View<float, 1> amax = {};  // acc (1)       amax slot: raised to max |h| as stored; optional
  View<const T, 2> x;        // in  (rows, in)
  View<const int32_t, 1> row = {};  // in  (A)       as in GroupedForward
  View<const int32_t, 1> offsets;   // in  (E+1)
  WeightStack<T> weight;            // in  (E, 2F, in)
  ProductScale scale = {};          // in            optional
};

template <typename T>
struct GroupedSwigluDgrad {
  View<T, 2> dgate_up;             // out (A, 2F)   may be gate_up itself
  View<float, 1> amax = {};        // acc (1)       amax slot: raised to max |dgate_up|; optional
  View<T, 2> dh;                   // tmp (A, F)    used where the two steps run one after the other
  View<const T, 2> dy;             // in  (A, out)
  View<const T, 2> gate_up;        // in  (A, 2F)
  View<const int32_t, 1> offsets;  // in  (E+1)     empty: E = 1, which has all rows
  WeightStack<T> weight;           // in  (E, out, F)
  ProductScale scale = {};         // in            optional
};

// Whether grouped_swiglu_dgrad is one kernel for (rows, F) of hidden width `out` on this GPU and is
// wanted for a dense FFN too: a stack of one weight without offsets.
bool grouped_swiglu_dgrad_pays(Exec on, int64_t out, int64_t ffn);
// Bytes of on.workspace that it needs then.
int64_t grouped_swiglu_dgrad_workspace_bytes(int64_t rows);

// on.workspace must have grouped_workspace_bytes() of the product.
template <typename T>
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<T>& a);
template <typename T>
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<T>& a);

// As the product, but forward also writes h, and dgrad reads gate_up and writes its gradient
// instead of dh.
template <typename T>
Cost grouped_swiglu_forward_cost(const GroupedSwigluForward<T>& a) {
  return {.bytes = view_bytes(a.gate_up, a.h, a.row, a.offsets, a.weight.plain, a.scale) +
                   2 * view_bytes(a.amax) + chosen_bytes(a.x, a.h.dim[0]),
          .flops = 2.0 * double(a.gate_up.size()) * double(a.x.dim[1]) + 5.0 * double(a.h.size())};
}
template <typename T>
Cost grouped_swiglu_dgrad_cost(const GroupedSwigluDgrad<T>& a) {
  return {.bytes = view_bytes(a.dgate_up, a.gate_up, a.dy, a.offsets, a.weight.plain, a.scale) +
                   2 * view_bytes(a.amax),
          .flops = double(a.gate_up.size()) * double(a.dy.dim[1]) + 5.5 * double(a.gate_up.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (grouped_swiglu.cu).
namespace gpu {
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<float>& a);
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<bf16>& a);
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<float>& a);
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<bf16>& a);
}  // namespace gpu

}  // namespace assay
