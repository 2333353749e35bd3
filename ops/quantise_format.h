// The format of a quantised copy of a matrix: its elements, its blocks, the layout of their scales.
//
// A copy is (lines, K), with K along the sum of the product that it is an operand of. Codes are
// row-major; of two e2m1 in a byte the first has the low half. A block has one scale:
//
//   kind       block       scale            plain layout             hardware layout
//   kTensor    all of it   fp32 S           -                        -
//   k1x128     1 x 128     fp32             (lines, K / 128)         (K / 128, pad4(lines))
//   k128x128   128 x 128   fp32             (lines / 128, K / 128)   (lines / 128, pad4(K / 128))
//   k1x32      1 x 32      e8m0             (lines, K / 32)          128 x 4 tiles
//   k1x16      1 x 16      ue4m3, fp32 S    (lines, K / 16)          128 x 4 tiles
//   k16x16     16 x 16     ue4m3, fp32 S    (lines / 16, K / 16)     128 x 4 tiles, once per line
//
// Quotients are rounded up. The hardware layouts are cuBLASLt's: for Hopper with fp32 scales, for
// Blackwell with 128 x 4 tiles. A block's scale is stored as the factor that decodes its codes. S
// multiplies before rounding; tensor_scale holds 1 / S, which products read, then S.
//
// 128 x 4 tiles: lines are padded to 128 and the K-blocks to 4; a tile has 512 bytes, with line r
// and block b of it at (r % 32) 16 + (r / 32) 4 + b, and tiles follow each other along K first.
// Padding is zero.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/math.h"

namespace assay {

enum class ElementFormat { kE4M3, kE5M2, kE2M1 };
enum class ScaleKind { kTensor, k1x128, k128x128, k1x32, k1x16, k16x16 };
enum class Rounding { kNearest, kStochastic };
enum class ScaleLayout { kPlain, kHardware };
enum class ScaleRounding { kExact, kPowerOfTwo };  // of M / amax for fp32 block scales; rounds down

struct QuantFormat {
  ElementFormat element;
  ScaleKind scale;
  Rounding rounding = Rounding::kNearest;
  ScaleLayout layout = ScaleLayout::kPlain;
  ScaleRounding scale_rounding = ScaleRounding::kExact;
  bool operator==(const QuantFormat&) const = default;
};

struct BlockShape {
  int64_t lines, columns;
};

// kTensor: K must be a multiple of `columns`.
constexpr BlockShape block_shape(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::k1x128:
      return {1, 128};
    case ScaleKind::k128x128:
      return {128, 128};
    case ScaleKind::k1x32:
      return {1, 32};
    case ScaleKind::k16x16:
      return {16, 16};
    default:
      return {1, 16};
  }
}
constexpr int has_tensor_scale(ScaleKind kind) {
  return kind == ScaleKind::kTensor || kind == ScaleKind::k1x16 || kind == ScaleKind::k16x16;
}
constexpr int has_float_scales(ScaleKind kind) {
  return kind == ScaleKind::k1x128 || kind == ScaleKind::k128x128;
}
constexpr int has_byte_scales(ScaleKind kind) {
  return kind != ScaleKind::kTensor && !has_float_scales(kind);
}

// K of a copy along `length` elements, padded with zeros to whole blocks.
constexpr int64_t padded_length(ScaleKind kind, int64_t length) {
  const int64_t block = block_shape(kind).columns;
  return round_up(length, block);
}
constexpr int64_t code_bytes(ElementFormat element, int64_t k) {
  return element == ElementFormat::kE2M1 ? k / 2 : k;
}

// Number of scales of a copy, padding included.
constexpr int64_t scale_count(const QuantFormat& f, int64_t lines, int64_t k) {
  if (f.scale == ScaleKind::kTensor) return 0;
  const BlockShape shape = block_shape(f.scale);
  const int64_t line_blocks = ceil_div(lines, shape.lines), blocks = ceil_div(k, shape.columns);
  if (f.layout == ScaleLayout::kPlain) return line_blocks * blocks;
  if (f.scale == ScaleKind::k1x128) return blocks * round_up(lines, 4);
  if (f.scale == ScaleKind::k128x128) return line_blocks * round_up(blocks, 4);
  return ceil_div(lines, 128) * ceil_div(blocks, 4) * 512;
}
// Index of the scale of (line, K-block).
constexpr int64_t scale_index(const QuantFormat& f, int64_t lines, int64_t k, int64_t line,
                              int64_t block) {
  const BlockShape shape = block_shape(f.scale);
  const int64_t blocks = ceil_div(k, shape.columns);
  if (f.layout == ScaleLayout::kPlain) return line / shape.lines * blocks + block;
  if (f.scale == ScaleKind::k1x128) return block * round_up(lines, 4) + line;
  if (f.scale == ScaleKind::k128x128) return line / 128 * round_up(blocks, 4) + block;
  const int64_t tile = line / 128 * ceil_div(blocks, 4) + block / 4;
  return tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + block % 4;
}
// True if a copy's scales have places that belong to no block, and for k16x16 in the hardware
// layout, which stores a scale once per line.
constexpr bool has_scale_padding(const QuantFormat& f, int64_t lines, int64_t k) {
  QuantFormat plain = f;
  plain.layout = ScaleLayout::kPlain;
  return scale_count(f, lines, k) != scale_count(plain, lines, k);
}
// Number of neighbouring lines that share a stored scale.
constexpr int64_t lines_of_stored_scale(const QuantFormat& f) {
  const int tiled = f.scale == ScaleKind::k16x16 && f.layout == ScaleLayout::kHardware;
  return tiled ? 1 : block_shape(f.scale).lines;
}

// Throws a UserError that names the tensor if k is not a multiple of the block.
void require_whole_blocks(std::string_view tensor, ScaleKind kind, int64_t k);

}  // namespace assay
