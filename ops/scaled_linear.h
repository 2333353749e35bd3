// The product of two quantised matrices in the formats that the hardware multiplies:
//
//   y[n, m] = sum_k left[n, k] right[m, k] + add[n, m]        left, right: code x scale, as ops/quantise.h wrote them
//
// Both copies have the layout of the hardware, their K is the same and holds the padding of both.
// With scales of 1x128 or 128x128 N and M are multiples of 8, else M is one of 16
// (cuda/scaled_matmul.h). fprop: x by W; dgrad: dy by the column copy of W; wgrad: the column
// copies of dy and of x, with add = dW itself. A GPU's op: on a CPU, and where
// scaled_linear_problem() names a reason, recipes multiply decoded operands (docs/decisions/0008),
// which gives the same up to the order of the sum and what the tensor cores' accumulators lose
// (cuda/scaled_matmul.h). on.workspace: kMatmulWorkspaceBytes.
#pragma once

#include <string>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise_format.h"

namespace assay {

struct CodedMatrix {
  QuantFormat format = {ElementFormat::kE4M3, ScaleKind::kTensor};  // its layout: kHardware
  View<const uint8_t, 2> codes;             // in (lines, code_bytes(element, K))
  View<const float, 1> scales = {};         // in of k1x128 and k128x128
  View<const uint8_t, 1> scale_codes = {};  // in of k1x32, k1x16, k16x16
  View<const float, 1> tensor_scale = {};   // in (2)   S, 1 / S of kTensor, k1x16, k16x16

  int64_t lines() const { return codes.dim[0]; }
  int64_t k() const {
    return format.element == ElementFormat::kE2M1 ? 2 * codes.dim[1] : codes.dim[1];
  }
  size_t bytes() const { return codes.bytes() + scales.bytes() + scale_codes.bytes(); }
};

// What 8-bit sums lose: cuda/scaled_matmul.h.
enum class CodedSums { kFast, kPromoted };

template <typename Y>
struct ScaledLinear {
  View<Y, 2> y;               // out (N, M)
  CodedMatrix left, right;    // in  (N, K), (M, K)
  View<const Y, 2> add = {};  // in  (N, M)   optional; may be y itself
  CodedSums sums = CodedSums::kPromoted;
};

// Y: bf16 or float.
template <typename Y>
void scaled_linear(Exec on, const ScaledLinear<Y>& a);

// Why a device of that compute capability (90: 9.0) cannot; "": it can.
std::string scaled_linear_problem(const QuantFormat& left, const QuantFormat& right,
                                  int capability);

template <typename Y>
Cost scaled_linear_cost(const ScaledLinear<Y>& a) {
  return {.bytes = double(a.y.bytes() + a.add.bytes() + a.left.bytes() + a.right.bytes()),
          .flops = 2.0 * double(a.y.size()) * double(a.left.k())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (scaled_linear.cu).
namespace gpu {
void scaled_linear(Exec on, const ScaledLinear<float>& a);
void scaled_linear(Exec on, const ScaledLinear<bf16>& a);
}  // namespace gpu

}  // namespace assay
