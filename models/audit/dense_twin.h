// The dense twin of a model: the same network with a dense FFN of width w in every block, with the
// w whose parameter count is closest to the model's P_active or P_total.
//
//   P_twin(w) = P_rest + 3 L C w        residual = P_twin - target
#pragma once

#include <cstdint>

#include "models/audit/audit.h"

namespace assay {

struct Twin {
  int64_t ffn = 0;         // w
  int64_t target = 0;      // P_active or P_total of the model
  int64_t parameters = 0;  // P_twin
  int64_t residual = 0;    // parameters - target
  double residual_percent = 0;
};

// kind: active or total, else UserError. w is a positive multiple of `multiple`; if two widths are
// equally close, the narrower one.
Twin dense_twin(const Config& like, const std::string& kind, int64_t multiple = 1);

}  // namespace assay
