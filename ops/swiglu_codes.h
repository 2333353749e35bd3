// SwiGLU and its gradient, written as the operands of the FFN's other products: 8-bit codes with a
// scale per 128 elements of a line, for FFNs in which nothing reads h or dgate_up in bf16. The
// results are those of ops/swiglu.h followed by ops/quantise.h, to the bit, without bf16 values in
// memory between them: at width F, a row's forward pass moves 5 F bytes instead of 9 F, its
// backward pass 11 F instead of 21 F.
//
//   forward     h          codes along its rows (fprop of the down projection)
//   backward    dgate_up   codes along its rows (dgrad of gate and up) and columns (wgrad)
//               h          again, along its columns (wgrad of the down projection)
//
// F is a multiple of 128; all arrays are aligned to 16 bytes. GPU only. References:
// tests/ref/swiglu.h, and the two ops.
#pragma once

#include <string>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise.h"

namespace assay {

struct SwigluCodesForward {
  QuantisedCopy h;                    // lines M, K = F
  View<uint32_t, 1> not_finite = {};  // acc (1)   as in Quantise
  View<const bf16, 2> gate_up;        // in (M, 2F)   [gate | up]
  QuantFormat format;                 // of h
};

struct SwigluCodesBackward {
  QuantisedCopy row;       // of dgate_up: lines M, K = 2F
  QuantisedCopy column;    // of dgate_up: lines 2F, K = M padded with zeros to whole blocks
  QuantisedCopy h_column;  // lines F, K = M padded
  View<uint32_t, 1> not_finite = {};  // acc (1)   as in Quantise; of several copies, any
  View<const bf16, 2> dh;             // in (M, F)
  View<const bf16, 2> gate_up;        // in (M, 2F)
  QuantFormat format;                 // of all three
};

void swiglu_codes_forward(Exec on, const SwigluCodesForward& a);
void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a);

// Reason why codes of this format and width have no kernel; empty if they have one.
std::string swiglu_codes_problem(const QuantFormat& format, int64_t width);

// Operations as in ops/swiglu.h and ops/quantise.h.
inline Cost swiglu_codes_forward_cost(const SwigluCodesForward& a) {
  const double width = double(a.gate_up.dim[1] / 2), h = double(a.gate_up.dim[0]) * width;
  return {.bytes = view_bytes(a.gate_up, a.h.codes, a.h.scales) + 2 * view_bytes(a.not_finite),
          .flops = (5 + 16) * h};
}
inline Cost swiglu_codes_backward_cost(const SwigluCodesBackward& a) {
  const auto written = [](const QuantisedCopy& c) { return view_bytes(c.codes, c.scales); };
  return {.bytes = view_bytes(a.gate_up, a.dh) + 2 * view_bytes(a.not_finite) + written(a.row) +
                   written(a.column) + written(a.h_column),
          .flops = (13 + 5 * 16) * double(a.dh.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (swiglu_codes.cu).
namespace gpu {
void swiglu_codes_forward(Exec on, const SwigluCodesForward& a);
void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a);
}  // namespace gpu

}  // namespace assay
