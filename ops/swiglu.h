// The gated activation of the FFN, on the packed output of its first product.
//
//   h[i,f] = silu(g) * u      g = gate_up[i,f],  u = gate_up[i,F+f],  silu(g) = g * sigmoid(g)
//   dg = dh * u * sigmoid(g) * (1 + g * (1 - sigmoid(g)))            du = dh * silu(g)
//
// Computed in float whatever T is. M may be 0 (an expert without tokens). Reference:
// tests/ref/swiglu.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct SwigluForward {
  View<T, 2> h;              // out (M, F)
  View<float, 1> amax = {};  // acc (1)      amax slot: raised to max |h| as stored; optional
  View<const T, 2> gate_up;  // in  (M, 2F)   [gate | up]
};

template <typename T>
struct SwigluBackward {
  View<T, 2> dgate_up;       // out (M, 2F)   may be gate_up itself
  View<float, 1> amax = {};  // acc (1)       amax slot: raised to max |dgate_up|; optional
  View<const T, 2> dh;       // in  (M, F)
  View<const T, 2> gate_up;  // in  (M, 2F)
};

template <typename T>
void swiglu_forward(Exec on, const SwigluForward<T>& a);
template <typename T>
void swiglu_backward(Exec on, const SwigluBackward<T>& a);

// gate_up is read, h written; the exponential and the division count as one flop each.
template <typename T>
Cost swiglu_forward_cost(const SwigluForward<T>& a) {
  return {.bytes = view_bytes(a.h, a.gate_up) + 2 * view_bytes(a.amax),
          .flops = 5.0 * double(a.h.size())};
}
template <typename T>
Cost swiglu_backward_cost(const SwigluBackward<T>& a) {
  return {.bytes = view_bytes(a.dh, a.gate_up, a.dgate_up) + 2 * view_bytes(a.amax),
          .flops = 11.0 * double(a.dh.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (swiglu.cu).
namespace gpu {
void swiglu_forward(Exec on, const SwigluForward<float>& a);
void swiglu_forward(Exec on, const SwigluForward<bf16>& a);
void swiglu_backward(Exec on, const SwigluBackward<float>& a);
void swiglu_backward(Exec on, const SwigluBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
