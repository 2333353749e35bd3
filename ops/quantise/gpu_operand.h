// Converts an operand of ops/scaled_linear.h to the form of cuda/scaled_matmul.h.
#pragma once

#include "base/check.h"
#include "cuda/scaled_matmul.h"
#include "ops/scaled_linear.h"

namespace assay {

inline gpu::CodeKind code_kind(const QuantFormat& f) {
  const auto format = [&] {
    switch (f.element) {
      case ElementFormat::kE4M3:
        return gpu::CodeFormat::kE4M3;
      case ElementFormat::kE5M2:
        return gpu::CodeFormat::kE5M2;
      case ElementFormat::kE2M1:
        return gpu::CodeFormat::kE2M1;
    }
    CHECK(false, "element %d", int(f.element));
  };
  const auto scales = [&] {
    switch (f.scale) {
      case ScaleKind::kTensor:
        return gpu::CodeScales::kTensor;
      case ScaleKind::k1x128:
        return gpu::CodeScales::k1x128;
      case ScaleKind::k128x128:
        return gpu::CodeScales::k128x128;
      case ScaleKind::k1x32:
        return gpu::CodeScales::k1x32;
      case ScaleKind::k1x16:
      case ScaleKind::k16x16:  // the hardware layout stores the block's scale once per line
        return gpu::CodeScales::k1x16;
    }
    CHECK(false, "scale %d", int(f.scale));
  };
  return {format(), scales()};
}

// 16 x 16 and 1 x 16 blocks also have a tensor scale, which is applied as a factor of the product.
inline bool scale_beside_blocks(const QuantFormat& f) {
  return has_tensor_scale(f.scale) && f.scale != ScaleKind::kTensor;
}

inline gpu::CodeOperand code_operand(const CodedMatrix& m) {
  const void* const scales =
      m.format.scale == ScaleKind::kTensor ? static_cast<const void*>(m.tensor_scale.data)
      : has_float_scales(m.format.scale)   ? static_cast<const void*>(m.scales.data)
                                           : static_cast<const void*>(m.scale_codes.data);
  return {.codes = m.codes.data, .scales = scales, .kind = code_kind(m.format)};
}

}  // namespace assay
