// SwiGLU and its gradient written as the operands of the FFN's other products: codes of 8 bits with
// a scale for each 128 of a line, where nobody reads h or dgate_up in bf16. What ops/swiglu.h and
// then ops/quantise.h give, to the bit, without the bf16 numbers between them: of F wide, a row's
// forward pass moves 5 F bytes instead of 9 F, its backward pass 11 F instead of 21 F.
//
//   forward     h          codes along its rows (fprop of the down projection)
//   backward    dgate_up   codes along its rows (dgrad of gate and up) and columns (wgrad)
//               h          again, along its columns (wgrad of the down projection)
//
// F is a multiple of 128; everything begins at multiples of 16 bytes. Only on a GPU. References:
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
  View<uint32_t, 1> not_finite = {};  // of several copies that are not finite any may be marked
  View<const bf16, 2> dh;             // in (M, F)
  View<const bf16, 2> gate_up;        // in (M, 2F)
  QuantFormat format;                 // of all three
};

void swiglu_codes_forward(Exec on, const SwigluCodesForward& a);
void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a);

// Why codes of such a format have no kernel here; "" if they have.
std::string swiglu_codes_problem(const QuantFormat& format, int64_t width);

// Operations as in ops/swiglu.h and ops/quantise.h.
inline Cost swiglu_codes_forward_cost(const SwigluCodesForward& a) {
  const double width = double(a.gate_up.dim[1] / 2), h = double(a.gate_up.dim[0]) * width;
  return {.bytes = double(a.gate_up.bytes() + a.h.codes.bytes() + a.h.scales.bytes()),
          .flops = (5 + 16) * h};
}
inline Cost swiglu_codes_backward_cost(const SwigluCodesBackward& a) {
  const auto written = [](const QuantisedCopy& c) {
    return double(c.codes.bytes() + c.scales.bytes());
  };
  return {.bytes = double(a.gate_up.bytes() + a.dh.bytes()) + written(a.row) + written(a.column) +
                   written(a.h_column),
          .flops = (13 + 5 * 16) * double(a.dh.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (swiglu_codes.cu).
namespace gpu {
void swiglu_codes_forward(Exec on, const SwigluCodesForward& a);
void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a);
}  // namespace gpu

}  // namespace assay
