// Reference of ops/fake_quantise.h, block by block, with the number formats of
// tests/ref/quantise.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/bf16.h"
#include "tests/ref/quantise.h"

namespace assay::ref {

enum class BlocksAlong { kColumns, kRows };  // of a row copy, of a column copy

struct FakeCopy {
  std::vector<double> y;  // (A, C)
  double s = 1;
  double flushed = 0, saturated = 0, errors = 0, squares = 0;
  std::vector<int> codes = {};  // (A, C); + 128 if the result is negative
  double blocks = 0, zero = 0, low = 0, high = 0;
  double largest = -1, smallest = -1;  // decode scales of blocks with a finite amax > 0; -1: none

  // Counts the scale of one block, or of a tensor without blocks.
  void add_scale(const QuantFormat& f, float amax, float multiply, double decode) {
    blocks += 1;
    zero += amax == 0;
    if (amax == 0 || !std::isfinite(amax)) return;
    const double numbers[] = {0x1p-127, 0x1p-9, 1 / 3.4028234663852886e38};  // e8m0, ue4m3, floats
    const int kind = f.scale == ScaleKind::k1x32 ? 0 : has_byte_scales(f.scale) ? 1 : 2;
    low += kind == 2 ? double(multiply) >= 3.4028234663852886e38 : decode <= numbers[kind];
    high += kind == 0 ? decode >= 0x1p127 : kind == 1 && decode >= 448;
    largest = std::max(largest, decode);
    smallest = smallest < 0 ? decode : std::min(smallest, decode);
  }
};

// z (A, C) with every complete group of 16 rows of a segment rotated.
inline std::vector<float> rotated_segments(const std::vector<float>& z, int64_t columns,
                                           const std::vector<int64_t>& offsets, uint32_t signs) {
  std::vector<float> y = z;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int64_t r = offsets[s]; r + 16 <= offsets[s + 1]; r += 16) {
      for (int64_t c = 0; c < columns; ++c) {
        std::vector<float> v(16);
        for (int64_t i = 0; i < 16; ++i) {
          const float value = z[size_t((r + i) * columns + c)];
          v[size_t(i)] = signs >> i & 1 ? -value : value;
        }
        const std::vector<float> t = walsh(v);
        for (int64_t i = 0; i < 16; ++i) y[size_t((r + i) * columns + c)] = 0.25f * t[size_t(i)];
      }
    }
  }
  return y;
}

// Computes element `at` of `copy` with its block's scale; `element` is its index for the draws.
inline void fake_element(FakeCopy& copy, const QuantFormat& f, const std::vector<double>& numbers,
                         const BlockReference& scale, float x, size_t at, const RandomKey& key,
                         int64_t element) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const bool is_nan = std::isnan(scale.decode), is_zero = scale.divide == 0;
  const double v = is_nan || is_zero ? 0.0 : double(x * scale.multiply / scale.divide);
  const int code = f.rounding == Rounding::kNearest
                       ? nearest_code(numbers, std::abs(v))
                       : drawn_code(numbers, std::abs(v), draw_half(key, element));
  const double number = is_zero ? 0.0 : std::copysign(numbers[size_t(code)], double(x));
  // Rounded to float, then to bf16.
  const double y = is_nan ? none : double(float(bf16(float(number * scale.decode))));
  copy.y[at] = y;
  copy.codes[at] = (is_zero ? 0 : code) + (std::signbit(y) ? 128 : 0);
  copy.flushed += x != 0 && y == 0;
  // One place of a float above the largest number comes from the rounding of the scale.
  const float above = std::nextafter(float(numbers.back()), std::numeric_limits<float>::infinity());
  copy.saturated += std::abs(v) > double(above);
  copy.errors += (y / copy.s - double(x)) * (y / copy.s - double(x));
  copy.squares += double(x) * double(x);
}

// If the copy is rotated, z (A, C) must already be.
inline FakeCopy fake_quantised(const QuantFormat& f, const std::vector<float>& z, int64_t rows,
                               int64_t columns, const std::vector<int64_t>& offsets,
                               BlocksAlong along, const RandomKey& key) {
  const BlockShape shape = block_shape(f.scale);
  const bool across = along == BlocksAlong::kColumns;
  const int64_t height = across ? shape.lines : shape.columns;
  const int64_t width = across ? shape.columns : shape.lines;
  const int64_t k = padded_length(f.scale, rows);
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto largest = [](float a, float b) { return std::isnan(a) || a > b ? a : b; };

  FakeCopy copy{.y = std::vector<double>(z.size())};
  copy.codes.resize(z.size());
  float amax = 0;
  for (const float x : z) amax = largest(std::abs(x), amax);
  const std::vector<double>& numbers = format_numbers(f.element);
  const double most_scaled = numbers.back() * (f.scale == ScaleKind::kTensor ? 1 : 448);
  if (has_tensor_scale(f.scale))
    copy.s = std::isfinite(amax) ? double(scale_to(most_scaled, amax)) : none;

  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int64_t r0 = offsets[s]; r0 < offsets[s + 1]; r0 += height) {
      for (int64_t c0 = 0; c0 < columns; c0 += width) {
        const int64_t r1 = std::min(r0 + height, offsets[s + 1]);
        const int64_t c1 = std::min(c0 + width, columns);
        float most = 0;
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t c = c0; c < c1; ++c)
            most = largest(std::abs(z[size_t(r * columns + c)]), most);
        BlockReference scale;
        if (std::isnan(copy.s) || !std::isfinite(most)) {
          scale.divide = 0;
          scale.decode = f.scale == ScaleKind::kTensor ? 1 : none;
        } else {
          scale = block_reference(f, float(copy.s), most);
        }
        if (f.scale != ScaleKind::kTensor) copy.add_scale(f, most, scale.multiply, scale.decode);
        for (int64_t r = r0; r < r1; ++r) {
          for (int64_t c = c0; c < c1; ++c) {
            const size_t at = size_t(r * columns + c);
            fake_element(copy, f, numbers, scale, z[at], at, key,
                         across ? r * columns + c : c * k + r);
          }
        }
      }
    }
  }
  if (f.scale == ScaleKind::kTensor && rows > 0) {
    copy.add_scale(f, amax, float(copy.s), double(1.0f / float(copy.s)));
  }
  return copy;
}

}  // namespace assay::ref
