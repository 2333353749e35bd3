// What a thread of the fake_quantise kernel does with a unit: draws its random bits, quantises and
// dequantises it, stores it.
#pragma once

#include <bit>

#include "base/random.h"
#include "cuda/gpu.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/gpu_fake_tile.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"

namespace assay::gpu::fake {

// Draws 16 bits for each element of a unit, from number `element` on: a multiple of 8 for a row
// copy, arbitrary for a column copy. Takes three generator blocks and shifts out the draws before
// `element`.
GPU_DEVICE void draw_unit(uint32_t (&half)[kUnit], const RandomKey& key, uint64_t element) {
  constexpr int kWords = 12;
  uint32_t w[kWords + 2] = {};
  for (int b = 0; b < kWords / 4; ++b) {
    const auto words = random_block(key, element / 8 + uint64_t(b));
    for (int i = 0; i < 4; ++i) w[4 * b + i] = words[size_t(i)];
  }
  for (int i = 0; i < kWords; ++i) w[i] = element & 4 ? w[i + 2] : w[i];
  for (int i = 0; i < kWords; ++i) w[i] = element & 2 ? w[i + 1] : w[i];
  for (int i = 0; i < kUnit; ++i) {
    const uint32_t even = w[i / 2] >> (i % 2 * 16);
    const uint32_t odd = w[(i + 1) / 2] >> ((i + 1) % 2 * 16);
    half[i] = (element & 1 ? odd : even) & 0xFFFFu;
  }
}

// Kernel variants, because registers set the number of warps per SM: unsampled steps that round to
// nearest, unsampled steps with stochastic rounding, and sampled steps, which measure with either
// rounding.
enum class Work { kNearest, kDraws, kMeasures };

// Quantises and dequantises a unit; y receives the bits of bf16.
template <Work kWork>
GPU_DEVICE void encode_unit(uint32_t (&y)[kUnit], const float (&v)[kUnit], const QuantFormat& f,
                            const BlockScale& scale, const RandomKey& key, uint64_t element) {
  const float decode = decode_factor(f, scale);
  const ElementGrid grid = element_grid(f.element);
  if (scale.divide == 0) {
    for (int i = 0; i < kUnit; ++i) y[i] = decode == decode ? 0u : 0x7FC0u;
    return;
  }
  float scaled[kUnit];
  for (int i = 0; i < kUnit; ++i) scaled[i] = v[i] * scale.multiply;
  if (scale.divide != 1) {
    for (int i = 0; i < kUnit; ++i) scaled[i] = scaled[i] / scale.divide;
  }
  if (kWork != Work::kNearest && f.rounding == Rounding::kStochastic) {
    uint32_t half[kUnit];
    draw_unit(half, key, element);
    for (int i = 0; i < kUnit; ++i) scaled[i] = grid.drawn(scaled[i], half[i]);
  } else {
    for (int i = 0; i < kUnit; ++i) scaled[i] = grid.nearest(scaled[i]);
  }
  for (int i = 0; i < kUnit; ++i) {
    const uint32_t sign = std::bit_cast<uint32_t>(v[i]) >> 16 & 0x8000u;
    y[i] = bf16::round_nearest_even(scaled[i] * decode) | sign;
  }
}

// Stores a unit; its first `count` elements are inside z.
template <FakeWay kWay>
GPU_DEVICE void store_unit(const View<bf16, 2>& to, int64_t row, int64_t column,
                           const uint32_t (&y)[kUnit], int count, int vectors) {
  if constexpr (kWay == FakeWay::kRow) {
    if (vectors) {
      auto* const words = reinterpret_cast<uint32_t*>(&to.at(row, column));
      for (int h = 0; h < kUnit / 2; h += 4) {
        Vec<uint32_t, 4> packed;
        for (int i = 0; i < 4; ++i) packed[i] = y[2 * (h + i)] | y[2 * (h + i) + 1] << 16;
        store_whole<4>(words + h, packed);
      }
      return;
    }
    for (int i = 0; i < kUnit; ++i) to.at(row, column + i).bits = uint16_t(y[i]);
  } else {
    for (int i = 0; i < kUnit; ++i) {
      if (i < count) to.at(row + i, column).bits = uint16_t(y[i]);
    }
  }
}

}  // namespace assay::gpu::fake
