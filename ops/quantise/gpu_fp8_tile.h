// FP8 codes, rounded to nearest, of 128 x 128 tiles of bf16, with a tensor scale or one scale per
// 128 elements of a line. Implements the copies of ops/quantise.h with sm_90 instructions; the two
// copies of a tile are made by
//
//   code_row()       16 adjacent elements of a row per thread, eight lanes per row of 128
//   code_columns()   the columns of the tile, by the whole block, from shared memory
#pragma once

#include <type_traits>

#include "base/small_float.h"
#include "cuda/gpu.h"
#include "ops/gpu/amax.h"
#include "ops/quantise.h"
#include "ops/quantise/scale.h"
#include "ops/zero.h"

namespace assay::gpu {

inline constexpr int kCodeTile = 128;     // rows and columns
inline constexpr int kCodeThreads = 256;  // per block
// Adjacent elements that a thread encodes at once: 16 bytes of codes.
inline constexpr int kCodeRun = 16;
inline constexpr int kCodeAcross = kCodeTile / kCodeRun;
// Pairs of bf16 per row: whole 16 bytes, and the next row is in other banks.
inline constexpr int kCodePitch = kCodeTile / 2 + 4;
inline constexpr int kCodeQuarters = 4;  // quarters of a column, in different warps

struct CodeTile {
  uint32_t pair[kCodeTile][kCodePitch];
  uint32_t most[kCodeQuarters][kCodeTile / 2];
};

using CodePairs = Vec<uint32_t, kCodeRun / 2>;

// Element-wise maximum of two pairs of magnitudes.
GPU_DEVICE uint32_t most_of_pairs(uint32_t most, uint32_t pair) {
  return max_u16x2(most, pair & 0x7FFF7FFFu);
}
// Magnitude of a bf16 as float bits; every NaN has the same pattern.
GPU_DEVICE uint32_t magnitude_of_bf16(uint32_t bits) {
  return magnitude_bits(float_of(bits << 16));
}

// Encoder for an element format and a scale kind known at compile time.
template <typename ElementType, ScaleKind kScale>
struct Coder {
  using Element = ElementType;
  static_assert(kScale == ScaleKind::kTensor || kScale == ScaleKind::k1x128);
  static constexpr bool kBlocks = kScale == ScaleKind::k1x128;
  QuantFormat format;

  GPU_DEVICE explicit Coder(const QuantFormat& f) : format(f) {
    format.element = std::is_same_v<Element, e4m3> ? ElementFormat::kE4M3 : ElementFormat::kE5M2;
    format.scale = kScale;
  }
  // amax: of a block, or of the tensor.
  GPU_DEVICE BlockScale scale(uint32_t amax) const {
    return block_scale(format, kBlocks ? 1.0f : tensor_scale(format, float_of(amax)), amax);
  }
  GPU_DEVICE static uint32_t pair(float low, float high) {
    return std::is_same_v<Element, e4m3> ? pack_e4m3(low, high) : pack_e5m2(low, high);
  }
  GPU_DEVICE static uint32_t four(float a, float b, float c, float d) {
    return pair(a, b) | pair(c, d) << 16;
  }
};

// The matrix and the position of a tile in it.
struct CodePlace {
  int64_t rows, columns;
  int64_t row, column;  // first of the tile
};

// State of one copy of a tile.
template <typename C>
struct CodeCopy {
  C coder;
  QuantisedCopy to = {};
  View<uint32_t, 1> not_finite = {};
  CodePlace place = {};
  uint32_t tensor_amax = 0;

  // Called by one thread per block of the scale: stores the scale, and the not-finite mark if amax
  // is not finite.
  GPU_DEVICE void store_scale(int64_t index, const BlockScale& scale, uint32_t amax) const {
    if constexpr (!C::kBlocks) return;
    to.scales[index] = scale.decode;
    mark_not_finite(not_finite, to.site, amax);
  }
};

// Tensor scale S (ops/quantise/scale.h). One thread of the grid stores 1 / S and S.
GPU_DEVICE float store_tensor_scale(const QuantFormat& f, const QuantisedCopy& to) {
  const float s = tensor_scale(f, to.amax[0]);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    to.tensor_scale[0] = s == s ? 1.0f / s : kScaleNaN;
    to.tensor_scale[1] = s;
  }
  return s;
}

// Called by every thread of the grid. Stores the tensor scale, and the not-finite mark if amax is
// not finite.
template <typename C>
GPU_DEVICE CodeCopy<C> begin_copy(const C& coder, const QuantisedCopy& to,
                                  const View<uint32_t, 1>& not_finite, const CodePlace& place) {
  CodeCopy<C> copy{coder, to, not_finite, place};
  if constexpr (C::kBlocks) return copy;
  copy.tensor_amax = magnitude_bits(to.amax[0]);
  store_tensor_scale(coder.format, to);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    mark_not_finite(not_finite, to.site, copy.tensor_amax);
  }
  return copy;
}

// Called by every lane of the warp. r: row of the tile; run: run of the row. A run is entirely
// inside the matrix or entirely outside.
template <typename C>
GPU_DEVICE void code_row(const CodeCopy<C>& copy, int r, int run, const CodePairs& x) {
  uint32_t amax = copy.tensor_amax;
  if constexpr (C::kBlocks) {
    uint32_t most = 0;
    for (int i = 0; i < kCodeRun / 2; ++i) most = most_of_pairs(most, x[i]);
    most = max_u16x2(most, most >> 16) & 0xFFFFu;
    amax = magnitude_of_bf16(warp_max(most, kCodeAcross));
  }
  const CodePlace& p = copy.place;
  const int64_t line = p.row + r, k = p.column + run * kCodeRun;
  if (line >= p.rows || k >= p.columns) return;
  const BlockScale scale = copy.coder.scale(amax);
  if (run == 0) {
    copy.store_scale(scale_index(copy.coder.format, p.rows, p.columns, line, k / kCodeTile), scale,
                     amax);
  }
  const float by = scale.multiply;
  Vec<uint32_t, kCodeRun / 4> codes;
  for (int i = 0; i < kCodeRun / 4; ++i) {
    const uint32_t low = x[2 * i], high = x[2 * i + 1];
    codes[i] = C::four(unpack_low(low) * by, unpack_high(low) * by, unpack_low(high) * by,
                       unpack_high(high) * by);
    codes[i] = scale.divide == 0 ? 0 : codes[i];
  }
  store_whole<kCodeRun / 4>(reinterpret_cast<uint32_t*>(copy.to.codes.row(line) + k), codes);
}

// Codes of 16 rows of one column of a column pair. kHigh: the second column.
template <typename C, int kHigh>
GPU_DEVICE Vec<uint32_t, kCodeRun / 4> column_codes(const uint32_t* pair, const BlockScale& scale) {
  const auto value = [&](int i) {
    return (kHigh ? unpack_high(pair[i]) : unpack_low(pair[i])) * scale.multiply;
  };
  Vec<uint32_t, kCodeRun / 4> codes;
  for (int i = 0; i < kCodeRun / 4; ++i) {
    codes[i] = C::four(value(4 * i), value(4 * i + 1), value(4 * i + 2), value(4 * i + 3));
    codes[i] = scale.divide == 0 ? 0 : codes[i];
  }
  return codes;
}

// Called by every thread of the block after a barrier that follows the writes of the tile, which is
// 0 outside the matrix. A warp has 32 pairs of columns and a quarter of their rows.
template <typename C>
GPU_DEVICE void code_columns(const CodeCopy<C>& copy, CodeTile& tile) {
  constexpr int kRows = kCodeTile / kCodeQuarters;
  static_assert(kCodeThreads == kCodeQuarters * kCodeTile / 2 && kRows == 2 * kCodeRun);
  const int pair_column = int(threadIdx.x) % (kCodeTile / 2);
  const int quarter = int(threadIdx.x) / (kCodeTile / 2);
  uint32_t x[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) x[i] = tile.pair[quarter * kRows + i][pair_column];
  uint32_t most = 0;
  if constexpr (C::kBlocks) {
    for (int i = 0; i < kRows; ++i) most = most_of_pairs(most, x[i]);
    tile.most[quarter][pair_column] = most;
    sync_block();
    for (int q = 0; q < kCodeQuarters; ++q) most = max_u16x2(most, tile.most[q][pair_column]);
  }
  const CodePlace& p = copy.place;
  const QuantFormat& format = copy.coder.format;
  const int64_t k = padded_length(format.scale, p.rows), first = p.row + quarter * kRows;
  const auto column = [&]<int kHigh>(std::integral_constant<int, kHigh>) {
    const int64_t line = p.column + 2 * pair_column + kHigh;
    if (line >= p.columns) return;
    const uint32_t amax =
        C::kBlocks ? magnitude_of_bf16(kHigh ? most >> 16 : most & 0xFFFFu) : copy.tensor_amax;
    const BlockScale scale = copy.coder.scale(amax);
    if (quarter == 0) {
      copy.store_scale(scale_index(format, p.columns, k, line, p.row / kCodeTile), scale, amax);
    }
#pragma unroll
    for (int h = 0; h < kRows; h += kCodeRun) {
      if (first + h >= k) continue;
      store_whole<kCodeRun / 4>(reinterpret_cast<uint32_t*>(copy.to.codes.row(line) + first + h),
                                column_codes<C, kHigh>(x + h, scale));
    }
  };
  column(std::integral_constant<int, 0>{});
  column(std::integral_constant<int, 1>{});
}

// Stores a run in the tile.
GPU_DEVICE void keep_run(CodeTile& tile, int r, int run, const CodePairs& x) {
  for (int h = 0; h < kCodeRun / 2; h += 4) {
    Vec<uint32_t, 4> four;
    for (int i = 0; i < 4; ++i) four[i] = x[h + i];
    store_whole<4>(&tile.pair[r][run * (kCodeRun / 2) + h], four);
  }
}
GPU_DEVICE CodePairs load_run(const bf16* from) {
  CodePairs x;
  for (int h = 0; h < kCodeRun / 2; h += 4) {
    const auto four = load_vec<4>(reinterpret_cast<const uint32_t*>(from) + h);
    for (int i = 0; i < 4; ++i) x[h + i] = four[i];
  }
  return x;
}

// Zeroes the entries of the hardware layout that belong to no block.
inline void clear_scale_padding(Exec on, const QuantFormat& format, const QuantisedCopy& copy,
                                int64_t lines, int64_t k) {
  if (!has_scale_padding(format, lines, k)) return;
  zero(on, copy.scales);
  zero(on, copy.scale_codes);
}

}  // namespace assay::gpu
