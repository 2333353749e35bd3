// The linear layers of the experts as native products of 8 bits: ops/grouped_linear.h and
// ops/grouped_swiglu.h on codes as ops/quantise.h writes them, by kernels of this project: by wgmma
// on a GPU of 9.0, by mma.sync on others since 8.9. GPU only.
//
//   expert e owns assignments offsets[e] <= a < offsets[e+1];  r = row[a]
//   linear           y[a,n] = sum_k x[a,k] W[e,n,k]
//   swiglu forward   gate_up[a] = sum_k x[r,k] W[e,.,k]
//                    h[a] = swiglu(gate_up[a]), from the rounded gate_up
//   swiglu dgrad     dh[a,n] = sum_k dy[a,k] W[e,n,k], not rounded
//                    dgate_up[a] = swiglu'(gate_up[a]) dh[a]
//
// x, dy, W: code x scale. Formats: E4M3 or E5M2 by E4M3, both with a tensor scale, or E4M3 1x128 by
// E4M3 128x128. The tensor cores' sums are added up in float every 128 of k. The weight is its row
// copy for fprop and its column copy for dgrad, whose k is the layer's `out`: in both products k is
// contiguous in both operands, as the hardware requires for 8 bits.
//
// The calls allocate nothing; on.workspace must have grouped_workspace_bytes(). Reference:
// tests/ref/grouped_linear.h on decoded operands.
#pragma once

#include <algorithm>
#include <string>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/scaled_linear.h"

namespace assay {

// The weights of all experts as one quantised matrix.
struct CodedStack {
  enum class Experts {
    kAlongLines,  // (E n, k): the row copy of W (E, n, k)
    kAlongK       // (n, E k): the column copy of W (E, k, n)
  };
  CodedMatrix all;
  int64_t experts;
  Experts along;

  // Shape of one expert's weight.
  int64_t lines() const {
    return along == Experts::kAlongLines ? all.lines() / experts : all.lines();
  }
  int64_t k() const { return along == Experts::kAlongLines ? all.k() : all.k() / experts; }
};

struct GroupedScaledLinear {
  View<bf16, 2> y;                 // out (A, n)
  CodedMatrix x;                   // in  (A, k)
  View<const int32_t, 1> offsets;  // in  (E+1)   assignments sorted by expert
  CodedStack weight;               // in  (E; n, k)
};

struct GroupedScaledSwigluForward {
  View<bf16, 2> h;                 // out (A, F)
  View<bf16, 2> gate_up;           // out (A, 2F)   [gate | up]
  View<float, 1> amax = {};        // acc (1)       amax slot: raised to max |h| as stored; optional
  CodedMatrix x;                   // in  (rows, k)
  View<const int32_t, 1> row;      // in  (A)
  View<const int32_t, 1> offsets;  // in  (E+1)
  CodedStack weight;               // in  (E; 2F, k)
};

struct GroupedScaledSwigluDgrad {
  View<bf16, 2> dgate_up;          // out (A, 2F)   may be gate_up itself
  View<float, 1> amax = {};        // acc (1)       amax slot: raised to max |dgate_up|; optional
  CodedMatrix dy;                  // in  (A, k)
  View<const bf16, 2> gate_up;     // in  (A, 2F)
  View<const int32_t, 1> offsets;  // in  (E+1)
  CodedStack weight;               // in  (E; F, k)
};

void grouped_scaled_linear(Exec on, const GroupedScaledLinear& a);
void grouped_scaled_swiglu_forward(Exec on, const GroupedScaledSwigluForward& a);
void grouped_scaled_swiglu_dgrad(Exec on, const GroupedScaledSwigluDgrad& a);

// Reason why a device of this compute capability (90: 9.0) has no such product; empty if it has.
// lines: of one expert's weight; with SwiGLU, of the gate alone.
std::string grouped_scaled_problem(const QuantFormat& x, const QuantFormat& weight, int64_t lines,
                                   int64_t k, int capability);

// Two flops per multiply-add; each matrix is read or written once, of x the rows that are gathered.
inline Cost grouped_scaled_linear_cost(const GroupedScaledLinear& a) {
  return {.bytes = view_bytes(a.y, a.x, a.offsets, a.weight.all),
          .flops = 2.0 * double(a.y.size()) * double(a.x.k())};
}
inline Cost grouped_scaled_swiglu_forward_cost(const GroupedScaledSwigluForward& a) {
  const double gathered = double(a.h.dim[0]) / double(std::max<int64_t>(a.x.lines(), 1));
  return {.bytes = view_bytes(a.gate_up, a.h, a.row, a.offsets, a.weight.all) +
                   2 * view_bytes(a.amax) + view_bytes(a.x) * std::min(gathered, 1.0),
          .flops = 2.0 * double(a.gate_up.size()) * double(a.x.k()) + 5.0 * double(a.h.size())};
}
inline Cost grouped_scaled_swiglu_dgrad_cost(const GroupedScaledSwigluDgrad& a) {
  return {.bytes = view_bytes(a.dgate_up, a.dy, a.gate_up, a.offsets, a.weight.all) +
                   2 * view_bytes(a.amax),
          .flops = double(a.gate_up.size()) * double(a.dy.k()) + 5.5 * double(a.gate_up.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (grouped_scaled.cu).
namespace gpu {
void grouped_scaled_linear(Exec on, const GroupedScaledLinear& a);
void grouped_scaled_swiglu_forward(Exec on, const GroupedScaledSwigluForward& a);
void grouped_scaled_swiglu_dgrad(Exec on, const GroupedScaledSwigluDgrad& a);
}  // namespace gpu

}  // namespace assay
