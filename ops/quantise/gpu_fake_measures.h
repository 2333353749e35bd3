// The measures of fake_quantise on the GPU: those of a unit, and the pass that merges those of the
// pieces.
#pragma once

#include <bit>

#include "cuda/gpu.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/block_stats.h"
#include "ops/quantise/gpu_fake_tile.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"

namespace assay::gpu::fake {

// Merges two values of a measure: sums are added, of the others the larger is kept.
struct Merged {
  int measure;
  template <typename T>
  GPU_DEVICE T operator()(T a, T b) const {
    if (measure < kFakeSums) return a + b;
    return a < b ? b : a;
  }
};

// Adds the measures of the first `count` elements to sums[FakeMeasure]; flips are counted in
// flips_of_unit.
GPU_DEVICE void measure_unit(double (&sums)[kFakeFlips], const float (&v)[kUnit],
                             const uint32_t (&y)[kUnit], int count, const QuantFormat& f,
                             const BlockScale& scale, float s) {
  const float largest = largest_scaled(f.element);
  for (int i = 0; i < kUnit; ++i) {
    if (i >= count) continue;
    const float got = std::bit_cast<float>(y[i] << 16);
    const float magnitude = v[i] < 0 ? -v[i] : v[i];
    const double error = double(got) / double(s) - double(v[i]);
    sums[kFakeValues] += 1;
    sums[kFakeFlushed] += v[i] != 0 && got == 0 ? 1 : 0;
    if (scale.divide != 0) {
      sums[kFakeSaturated] += magnitude * scale.multiply / scale.divide > largest ? 1 : 0;
    }
    sums[kFakeErrors] += error * error;
    sums[kFakeSquares] += double(v[i]) * double(v[i]);
  }
}

// Number of codes, among the first `count` of the unit, that differ from the earlier copy, which y
// still holds.
template <FakeWay kWay>
GPU_DEVICE uint32_t flips_of_unit(const View<bf16, 2>& earlier, int64_t row, int64_t column,
                                  float earlier_decode, const uint32_t (&y)[kUnit], float decode,
                                  const ElementGrid& grid, int count) {
  uint32_t flips = 0;
  for (int i = 0; i < kUnit; ++i) {
    if (i >= count) continue;
    const uint32_t was =
        kWay == FakeWay::kRow ? earlier.at(row, column + i).bits : earlier.at(row + i, column).bits;
    flips += number_of_code(grid, was, earlier_decode) != number_of_code(grid, y[i], decode);
  }
  return flips;
}

// The measures of a piece that a copy does not have.
template <typename X>
GPU_DEVICE void clear_partial(const FakeQuantise<X>& a, int64_t number, FakeWay way) {
  static_assert(kFakeMeasures <= kThreads);
  if (a.measures.empty() || threadIdx.x >= unsigned(kFakeMeasures)) return;
  const int first = way == FakeWay::kRow ? 0 : kFakeMeasures;
  a.partial.at(number, first + int(threadIdx.x)) = 0;
}

// a.measures merged with the first `pieces` rows of a.partial, and with the measures of the tensor
// scales.
template <typename X>
void merge_measures(Exec on, const FakeQuantise<X>& a, int64_t pieces);

}  // namespace assay::gpu::fake
