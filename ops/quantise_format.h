// What a quantised copy of a matrix looks like: its elements, its blocks, where their scales lie.
//
// A copy is (lines, K), K along the sum of the product it is an operand of. Codes are row-major; of
// two e2m1 in a byte the first has the low half. A block has one scale:
//
//   kind         block               scale                      plain layout             hardware layout
//   kTensor      all of it           fp32 S in tensor_scale     -                        -
//   k1x128       1 x 128             fp32, decode               (lines, K / 128)         (K / 128, pad4(lines)): cuBLASLt, Hopper
//   k128x128     128 x 128           fp32, decode               (lines / 128, K / 128)   (lines / 128, pad4(K / 128)): the same
//   k1x32        1 x 32              e8m0, decode               (lines, K / 32)          128 x 4 tiles: Blackwell
//   k1x16        1 x 16              ue4m3, and fp32 S          (lines, K / 16)          128 x 4 tiles
//   k16x16       16 x 16             ue4m3, and fp32 S          (lines / 16, K / 16)     128 x 4 tiles, once for each line
//
// Quotients are rounded up. "Decode" is the factor of the code. S multiplies before rounding; its
// reciprocal stands behind it. 128 x 4 tiles: lines are padded to 128 and the K-blocks to 4; a tile
// has 512 bytes, line r and block b of it at (r % 32) 16 + (r / 32) 4 + b, and tiles follow each
// other along K first. What is padding is zero.
#pragma once

#include <cstdint>
#include <string_view>

namespace assay {

enum class ElementFormat { kE4M3, kE5M2, kE2M1 };
enum class ScaleKind { kTensor, k1x128, k128x128, k1x32, k1x16, k16x16 };
enum class Rounding { kNearest, kStochastic };
enum class ScaleLayout { kPlain, kHardware };
enum class ScaleRounding { kExact, kPowerOfTwo };  // of fp32 scales of blocks; downwards

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

// Of kTensor: what its K must be a multiple of.
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

constexpr int64_t ceil_div(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}
// K of the copy along `length` elements that are padded with zeros to whole blocks.
constexpr int64_t padded_length(ScaleKind kind, int64_t length) {
  const int64_t block = block_shape(kind).columns;
  return ceil_div(length, block) * block;
}
constexpr int64_t code_bytes(ElementFormat element, int64_t k) {
  return element == ElementFormat::kE2M1 ? k / 2 : k;
}

// Scales of a copy, padding included, and where the one of (line, K-block) is.
constexpr int64_t scale_count(const QuantFormat& f, int64_t lines, int64_t k) {
  if (f.scale == ScaleKind::kTensor) return 0;
  const BlockShape shape = block_shape(f.scale);
  const int64_t line_blocks = ceil_div(lines, shape.lines), blocks = ceil_div(k, shape.columns);
  if (f.layout == ScaleLayout::kPlain) return line_blocks * blocks;
  if (f.scale == ScaleKind::k1x128) return blocks * ceil_div(lines, 4) * 4;
  if (f.scale == ScaleKind::k128x128) return line_blocks * ceil_div(blocks, 4) * 4;
  return ceil_div(lines, 128) * ceil_div(blocks, 4) * 512;
}
constexpr int64_t scale_index(const QuantFormat& f, int64_t lines, int64_t k, int64_t line,
                              int64_t block) {
  const BlockShape shape = block_shape(f.scale);
  const int64_t blocks = ceil_div(k, shape.columns);
  if (f.layout == ScaleLayout::kPlain) return line / shape.lines * blocks + block;
  if (f.scale == ScaleKind::k1x128) return block * (ceil_div(lines, 4) * 4) + line;
  if (f.scale == ScaleKind::k128x128) return line / 128 * (ceil_div(blocks, 4) * 4) + block;
  const int64_t tile = line / 128 * ceil_div(blocks, 4) + block / 4;
  return tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + block % 4;
}
// Whether a copy's scales have places that belong to no block. (Those of 16 x 16 are kept once a
// line: said to have some.)
constexpr bool has_scale_padding(const QuantFormat& f, int64_t lines, int64_t k) {
  QuantFormat plain = f;
  plain.layout = ScaleLayout::kPlain;
  return scale_count(f, lines, k) != scale_count(plain, lines, k);
}
// How many neighbouring lines share a stored scale.
constexpr int64_t lines_of_stored_scale(const QuantFormat& f) {
  const int tiled = f.scale == ScaleKind::k16x16 && f.layout == ScaleLayout::kHardware;
  return tiled ? 1 : block_shape(f.scale).lines;
}

// UserError that names the tensor where K is no multiple of the block.
void require_whole_blocks(std::string_view tensor, ScaleKind kind, int64_t k);

}  // namespace assay
