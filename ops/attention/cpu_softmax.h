// The softmax in the CPU bodies of attention: 64 queries, whose keys arrive tile by tile. A vector
// holds 16 queries; scores are in base 2.
#pragma once

#include <cmath>

#include "ops/attention/cpu_geometry.h"

namespace assay::attention {

struct OnlineSoftmax {
  f32x16 top[kTileVectors];       // the largest score so far
  f32x16 sum[kTileVectors] = {};  // of exp2(score - top)

  OnlineSoftmax() {
    for (f32x16& t : top) t = broadcast(-INFINITY);
  }

  // Makes `sum`, still relative to the maxima `before`, relative to those of now. shrink (queries):
  // the factors, which the weighted sum of v needs too.
  [[gnu::always_inline]] void rescale(const OnlineSoftmax& before, float* shrink) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const f32x16 factor = exp2_fast(before.top[v] - top[v]);
      sum[v] *= factor;
      store(shrink + v * kVector, factor);
    }
  }
};

// The same for each query, after the last key.
struct SoftmaxOfQueries {
  alignas(64) float sum[kTile];
  alignas(64) float top[kTile];

  explicit SoftmaxOfQueries(const OnlineSoftmax& softmax) {
    for (int v = 0; v < kTileVectors; ++v) {
      store(sum + v * kVector, softmax.sum[v]);
      store(top + v * kVector, softmax.top[v]);
    }
  }
  float lse(int64_t query) const { return (top[query] + std::log2(sum[query])) * kLn2; }
};

}  // namespace assay::attention
