// Statistics of the block scales of a copy, and detection of changed codes, for fake_quantise:
// integers and maxima, so every backend and order gives the same numbers.
#pragma once

#include "base/bf16.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"

namespace assay {

enum class ScaleState { kInRange, kZeroBlock, kLow, kHigh, kNotFinite };

constexpr ScaleState scale_state(const QuantFormat& f, const BlockScale& scale,
                                 uint32_t amax_bits) {
  if (amax_bits >= kInfinityBits) return ScaleState::kNotFinite;
  if (amax_bits == 0) return ScaleState::kZeroBlock;
  if (has_byte_scales(f.scale)) {
    const int powers = f.scale == ScaleKind::k1x32;
    if (scale.code <= (powers ? 0u : 1u)) return ScaleState::kLow;
    return scale.code >= (powers ? 254u : 126u) ? ScaleState::kHigh : ScaleState::kInRange;
  }
  // The multiplier saturates at the largest float, or at the power of two below it.
  const int powers = f.scale_rounding == ScaleRounding::kPowerOfTwo;
  const uint32_t most = powers && has_float_scales(f.scale) ? 0x7F000000u : 0x7F7FFFFFu;
  return std::bit_cast<uint32_t>(scale.multiply) >= most ? ScaleState::kLow : ScaleState::kInRange;
}

// The decoded scale; for a tensor scale 1 / S.
constexpr float decoded_scale(const QuantFormat& f, const BlockScale& scale) {
  return f.scale == ScaleKind::kTensor ? 1.0f / scale.multiply : decode_factor(f, scale);
}

struct BlockCounts {
  uint32_t blocks = 0, zero = 0, low = 0, high = 0;
  uint32_t largest = 0, smallest = 0;  // encoded as kFakeLargestScale and kFakeSmallestScale

  constexpr void add(const QuantFormat& f, const BlockScale& scale, uint32_t amax_bits) {
    const ScaleState state = scale_state(f, scale, amax_bits);
    blocks += 1;
    zero += state == ScaleState::kZeroBlock;
    low += state == ScaleState::kLow;
    high += state == ScaleState::kHigh;
    if (state == ScaleState::kZeroBlock || state == ScaleState::kNotFinite) return;
    const uint32_t bits = std::bit_cast<uint32_t>(decoded_scale(f, scale));
    if (largest < bits + 1) largest = bits + 1;
    if (smallest < ~bits) smallest = ~bits;
  }
  // measure: kFakeBlocks or a later one.
  constexpr uint32_t value(int measure) const {
    const uint32_t values[] = {blocks, zero, low, high, largest, smallest};
    return values[measure - kFakeBlocks];
  }
};

constexpr double merged(int measure, double a, double b) {
  if (measure < kFakeSums) return a + b;
  return a < b ? b : a;
}

// A measure of a tensor without block scales, which counts as one block. s: its scale.
constexpr double tensor_measure(int measure, const QuantFormat& f, float s, float amax) {
  if (f.scale != ScaleKind::kTensor || measure < kFakeBlocks) return 0;
  const uint32_t bits = magnitude_bits(amax);
  BlockCounts counts;
  counts.add(f, block_scale(f, s, bits), bits);
  return counts.value(measure);
}

// Signed value of the code that decodes to y (bits of bf16) by the scale of its block.
constexpr uint32_t number_of_code(const ElementGrid& grid, uint32_t y, float decode) {
  const float magnitude = decode == 0 ? 0.0f : grid.nearest(std::bit_cast<float>(y << 16) / decode);
  return std::bit_cast<uint32_t>(magnitude) | (y & 0x8000u) << 16;
}

}  // namespace assay
