#include "ops/quantise/cpu_lanes.h"

#include "ops/quantise/block_stats.h"
#include "ops/quantise/scale.h"

namespace assay {

namespace {

template <ScaleKind kKind>
void block_scales(BlockLanes& to, const QuantFormat& format, float s, const uint32_t* most,
                  int64_t n) {
  QuantFormat f = format;
  f.scale = kKind;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const BlockScale scale = block_scale(f, s, most[i]);
    const float decode = decode_factor(f, scale);
    const int none = scale.divide == 0;  // all codes are 0: decodes to +0, or to NaN by the scale
    to.multiply[i] = scale.multiply;
    to.divide[i] = none ? 1.0f : scale.divide;
    to.decode[i] = none && decode == decode ? 0.0f : decode;
    to.sign[i] = none ? 0u : 0x80000000u;
  }
}

enum class Scaling { kMultiplies, kDividesToo };

template <Rounding kRounding, Scaling kScaling>
void encode(bf16* y, const float* x, const LineLanes& scale, const ElementGrid& element_grid,
            const uint16_t* half, int64_t n) {
  const ElementGrid grid = element_grid;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    float v = x[i] * scale.multiply[i];
    if constexpr (kScaling == Scaling::kDividesToo) v = v / scale.divide[i];
    float element;
    if constexpr (kRounding == Rounding::kStochastic) {
      element = grid.drawn(v, half[i]);
    } else {
      element = grid.nearest(v);
    }
    const uint32_t u = std::bit_cast<uint32_t>(element * scale.decode[i]);
    const uint32_t sign = std::bit_cast<uint32_t>(x[i]) & scale.sign[i];
    // Rounds as bf16 does; the only possible NaN is unchanged by it.
    y[i].bits = static_cast<uint16_t>(((u + 0x7FFFu + (u >> 16 & 1u)) | sign) >> 16);
  }
}

template <Rounding kRounding>
LineCoder coder_of(const QuantFormat& f) {
  constexpr auto kMultiplies = &encode<kRounding, Scaling::kMultiplies>;
  constexpr auto kDivides = &encode<kRounding, Scaling::kDividesToo>;
  const ElementGrid grid = element_grid(f.element);
  switch (f.scale) {
    case ScaleKind::kTensor:
      return {&block_scales<ScaleKind::kTensor>, kMultiplies, grid};
    case ScaleKind::k1x128:
    case ScaleKind::k128x128:
      return {&block_scales<ScaleKind::k1x128>, kMultiplies, grid};
    case ScaleKind::k1x32:
      return {&block_scales<ScaleKind::k1x32>, kMultiplies, grid};
    default:
      return {&block_scales<ScaleKind::k1x16>, kDivides, grid};
  }
}

}  // namespace

LineCoder line_coder(const QuantFormat& f) {
  return f.rounding == Rounding::kNearest ? coder_of<Rounding::kNearest>(f)
                                          : coder_of<Rounding::kStochastic>(f);
}

void measure_line(double* sums, const QuantFormat& f, const bf16* y, const float* x,
                  const LineLanes& scale, float s, int64_t n) {
  const float largest = largest_scaled(f.element);
  int32_t flushed = 0, saturated = 0;
  double errors = 0, squares = 0;
#pragma omp simd reduction(+ : flushed, saturated, errors, squares)
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i] * scale.multiply[i] / scale.divide[i];
    const double e = double(float(y[i])) / double(s) - double(x[i]);
    flushed += x[i] != 0 && float(y[i]) == 0;
    saturated += scale.sign[i] != 0 && (v > largest || v < -largest);
    errors += e * e;
    squares += double(x[i]) * double(x[i]);
  }
  sums[kFakeValues] += double(n);
  sums[kFakeFlushed] += flushed;
  sums[kFakeSaturated] += saturated;
  sums[kFakeErrors] += errors;
  sums[kFakeSquares] += squares;
}

int32_t count_flips(const ElementGrid& element_grid, const bf16* earlier,
                    const float* earlier_decode, const bf16* y, const float* decode, int64_t n) {
  const ElementGrid grid = element_grid;
  int32_t flips = 0;
#pragma omp simd reduction(+ : flips)
  for (int64_t i = 0; i < n; ++i) {
    flips += number_of_code(grid, earlier[i].bits, earlier_decode[i]) !=
             number_of_code(grid, y[i].bits, decode[i]);
  }
  return flips;
}

}  // namespace assay
