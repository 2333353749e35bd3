// Buffers for the operands of the current native product (models/linear/native_products.h): codes
// and scales of the copies of activations and gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "cuda/memory_plan.h"
#include "engine/config/config.h"
#include "ops/quantise.h"
#include "ops/scaled_linear.h"

namespace assay {

// Memory for a coded copy of any matrix (lines, k) within the planned Room.
struct CodedBuffer {
  View<uint8_t, 1> codes;
  View<float, 1> scales;
  View<uint8_t, 1> scale_codes;
  View<float, 1> tensor_scale;  // (2)   1 / S, S

  // Sizes that hold every shape and format passed to reach().
  struct Room {
    int64_t codes = 0, scales = 0, scale_codes = 0;
    void reach(const QuantFormat& format, int64_t lines, int64_t k);
  };
  void plan(MemoryPlan& plan, Section section, const std::string& name, const Room& room);
  // The copy's views, without amax, site and key.
  QuantisedCopy copy(const QuantFormat& format, int64_t lines, int64_t k) const;
  CodedMatrix matrix(const QuantFormat& format, int64_t lines, int64_t k) const;
};

// The format with ScaleLayout::kHardware.
QuantFormat hardware_format(QuantFormat format);

// Widths of the operands of all products except those of routed experts.
std::vector<int64_t> dense_widths(const ModelConfig& config);

struct NativeScratch {
  CodedBuffer row, column, other;
  // Column copy of an FFN's dy while its inner gradient is written (models/linear/native_swiglu.h).
  CodedBuffer kept;
  // For micro-batches of up to `tokens`.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t tokens);
};

}  // namespace assay
