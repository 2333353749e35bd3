// Stores the sums of a product of ops/cpu_gemm/gemm.h that has a scale.
#pragma once

#include <cstdint>

#include "base/bf16.h"

namespace assay::panel {

// c[j] = scale sum[j] + start[j], rounded to Y; start may be c itself, or null: 0.
template <typename Y>
void store_scaled(Y* c, const Y* start, float scale, const float* sum, int64_t cols) {
  if (start == nullptr) {
    for (int64_t j = 0; j < cols; ++j) round_to(c[j], scale * sum[j]);
    return;
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < cols; ++j) round_to(c[j], scale * sum[j] + float(start[j]));
}

}  // namespace assay::panel
