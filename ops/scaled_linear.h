// The product of two quantised matrices in formats that the hardware multiplies (native product):
//
//   y[n, m] = sum_k left[n, k] right[m, k] + add[n, m]
//
// left and right are code x scale as ops/quantise.h writes them, in the hardware layout, with the
// same K, padding included: a multiple of 16, in E2M1 of 32. With 1x128 or 128x128 scales N and M
// must be multiples of 8, else M must be a multiple of 16 (cuda/scaled_matmul.h). fprop: x by W;
// dgrad: dy by the column copy of W; wgrad: the column copies of dy and of x, with add = dW itself.
//
// GPU only. On a CPU, and where scaled_linear_problem() gives a reason, recipes use simulated
// products (docs/decisions/0008), which give the same up to the order of the sum and the bits that
// the tensor cores' accumulators lose (cuda/scaled_matmul.h). on.workspace: kMatmulWorkspaceBytes.
#pragma once

#include <string>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise_format.h"

namespace assay {

struct CodedMatrix {
  QuantFormat format = {ElementFormat::kE4M3, ScaleKind::kTensor};  // layout kHardware
  View<const uint8_t, 2> codes;             // in (lines, code_bytes(element, K))
  View<const float, 1> scales = {};         // in for k1x128, k128x128
  View<const uint8_t, 1> scale_codes = {};  // in for k1x32, k1x16, k16x16
  View<const float, 1> tensor_scale = {};   // in (2)   1 / S, S for kTensor, k1x16, k16x16

  int64_t lines() const { return codes.dim[0]; }
  int64_t k() const {
    return format.element == ElementFormat::kE2M1 ? 2 * codes.dim[1] : codes.dim[1];
  }
  size_t bytes() const {
    return codes.bytes() + scales.bytes() + scale_codes.bytes() + tensor_scale.bytes();
  }
  bool empty() const { return codes.empty(); }
};

// Precision of 8-bit sums: ScaledMatmul::Sums of cuda/scaled_matmul.h.
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

// Reason why a device of this compute capability (90: 9.0) has no such product; empty if it has.
std::string scaled_linear_problem(const QuantFormat& left, const QuantFormat& right,
                                  int capability);

template <typename Y>
Cost scaled_linear_cost(const ScaledLinear<Y>& a) {
  return {.bytes = view_bytes(a.y, a.add, a.left, a.right),
          .flops = 2.0 * double(a.y.size()) * double(a.left.k())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (scaled_linear.cu).
namespace gpu {
void scaled_linear(Exec on, const ScaledLinear<float>& a);
void scaled_linear(Exec on, const ScaledLinear<bf16>& a);
}  // namespace gpu

}  // namespace assay
