// Decodes codes: y = code x scale of the block. The tensor's scale is not applied; it belongs to
// the epilogue of the product that reads y.
//
// With e8m0 or ue4m3 scales, or without block scales, y is exact in bf16 (within bf16's range).
// With fp32 scales the product is computed in float and rounded to T once. A NaN scale makes its
// block NaN.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise_format.h"

namespace assay {

template <typename T>
struct Dequantise {
  View<T, 2> y;                             // out (lines, K)
  View<const uint8_t, 2> codes;             // in  (lines, code_bytes(element, K))
  View<const float, 1> scales = {};         // in  (scale_count) for k1x128, k128x128
  View<const uint8_t, 1> scale_codes = {};  // in  (scale_count) for k1x32, k1x16, k16x16
  QuantFormat format;
};

template <typename T>
void dequantise(Exec on, const Dequantise<T>& a);

template <typename T>
Cost dequantise_cost(const Dequantise<T>& a) {
  return {.bytes = view_bytes(a.y, a.codes, a.scales, a.scale_codes),
          .flops = 4.0 * double(a.y.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (dequantise.cu).
namespace gpu {
void dequantise(Exec on, const Dequantise<float>& a);
void dequantise(Exec on, const Dequantise<bf16>& a);
}  // namespace gpu

}  // namespace assay
