// hadamard16 (ops/quantise/hadamard16.h) of every column of 16 rows, for the CPU ops: operates on
// rows, so that columns fill vectors.
#pragma once

#include <cstdint>

#include "ops/quantise/hadamard16.h"

namespace assay {

template <int64_t kColumns>
void hadamard_rows(float (*x)[kColumns], uint32_t signs, HadamardWay way = HadamardWay::kForward) {
  const uint32_t before = way == HadamardWay::kForward ? signs : 0;
  const uint32_t after = way == HadamardWay::kForward ? 0 : signs;
  const auto scale_row = [&](int i, float factor) {
#pragma omp simd
    for (int64_t c = 0; c < kColumns; ++c) x[i][c] *= factor;
  };
  for (int i = 0; i < kHadamard; ++i) {
    if (before >> i & 1) scale_row(i, -1.0f);
  }
  for (int distance = 1; distance < kHadamard; distance *= 2) {
    for (int i = 0; i < kHadamard; ++i) {
      if ((i & distance) != 0) continue;
      float *a = x[i], *b = x[i + distance];
#pragma omp simd
      for (int64_t c = 0; c < kColumns; ++c) {
        const float sum = a[c] + b[c], difference = a[c] - b[c];
        a[c] = sum;
        b[c] = difference;
      }
    }
  }
  for (int i = 0; i < kHadamard; ++i) scale_row(i, after >> i & 1 ? -0.25f : 0.25f);
}

}  // namespace assay
