// Where the operands of native products (models/linear/native_products.h) lie while one is at hand:
// codes and scales of two copies of an activation or a gradient.
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

// A copy of a matrix of any lines x k that was planned for.
struct CodedBuffer {
  View<uint8_t, 1> codes;
  View<float, 1> scales;
  View<uint8_t, 1> scale_codes;
  View<float, 1> tensor_scale;  // (2)

  // For copies of one shape and format, or of all shapes and formats that were reached.
  struct Room {
    int64_t codes = 0, scales = 0, scale_codes = 0;
    void reach(const QuantFormat& format, int64_t lines, int64_t k);
  };
  void plan(MemoryPlan& plan, Section section, const std::string& name, const Room& room);
  // Without amax and key.
  QuantisedCopy copy(const QuantFormat& format, int64_t lines, int64_t k) const;
  CodedMatrix matrix(const QuantFormat& format, int64_t lines, int64_t k) const;
};

// The format as the hardware has it laid out.
QuantFormat hardware_format(QuantFormat format);

// Of the operands of all products but those of routed experts.
std::vector<int64_t> dense_widths(const ModelConfig& config);

struct NativeScratch {
  CodedBuffer row, column, other;
  CodedBuffer
      kept;  // columns of an FFN's dy, while its inner gradient is written (models/linear/native_swiglu.h)
  // For micro-batches of `tokens` through the products of the model.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t tokens);
};

}  // namespace assay
