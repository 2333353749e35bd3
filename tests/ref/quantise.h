// Reference of ops/quantise.h, one element at a time, without bit arithmetic: the numbers of a
// format are listed from its definition and searched. Scales are computed in float, in the order
// that ops/quantise/scale.h specifies; everything else in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "ops/quantise_format.h"

namespace assay::ref {

inline std::vector<double> list_numbers(ElementFormat format) {
  const int mantissa = format == ElementFormat::kE4M3 ? 3 : format == ElementFormat::kE5M2 ? 2 : 1;
  const int bias = format == ElementFormat::kE4M3 ? 7 : format == ElementFormat::kE5M2 ? 15 : 1;
  const double largest = format == ElementFormat::kE4M3   ? 448
                         : format == ElementFormat::kE5M2 ? 57344
                                                          : 6;
  std::vector<double> numbers;
  for (int code = 0; numbers.empty() || numbers.back() < largest; ++code) {
    const int exponent = code >> mantissa, fraction = code & ((1 << mantissa) - 1);
    const double significand = exponent == 0 ? fraction : (1 << mantissa) + fraction;
    numbers.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - mantissa));
  }
  return numbers;
}
// The format's numbers from 0 to its largest, in the order of their codes. Listed once.
inline const std::vector<double>& format_numbers(ElementFormat format) {
  static const std::vector<double> kE4M3 = list_numbers(ElementFormat::kE4M3),
                                   kE5M2 = list_numbers(ElementFormat::kE5M2),
                                   kE2M1 = list_numbers(ElementFormat::kE2M1);
  return format == ElementFormat::kE4M3 ? kE4M3 : format == ElementFormat::kE5M2 ? kE5M2 : kE2M1;
}

struct Neighbours {
  int below;     // code
  double share;  // fraction of the distance to the next number
};
inline Neighbours neighbours(const std::vector<double>& numbers, double magnitude) {
  const double cut = std::min(magnitude, numbers.back());
  const auto above = std::upper_bound(numbers.begin(), numbers.end(), cut);
  const int below = int(above - numbers.begin()) - 1;
  if (above == numbers.end()) return {below, 0};
  return {below, (cut - numbers[size_t(below)]) / (*above - numbers[size_t(below)])};
}
inline int nearest_code(const std::vector<double>& numbers, double magnitude) {
  const Neighbours n = neighbours(numbers, magnitude);
  return n.below + (n.share > 0.5 || (n.share == 0.5 && n.below % 2 == 1));
}
inline int drawn_code(const std::vector<double>& numbers, double magnitude, uint32_t random16) {
  const Neighbours n = neighbours(numbers, magnitude);
  return n.below + (std::floor(n.share * 65536 + 0.5) + random16 >= 65536);
}
inline uint32_t draw_half(const RandomKey& key, int64_t element) {
  const uint32_t word = random_word(key, uint64_t(element / 2));
  return element % 2 == 0 ? word & 0xFFFF : word >> 16;
}

// An unpacked copy of x (lines, K).
struct QuantisedMatrix {
  std::vector<int> codes;      // (lines, K), sign included
  std::vector<double> scales;  // plain layout: the decode factor (float scales) or the scale byte
  std::vector<double> values;  // (lines, K): code times block scale, without the tensor's scale
  double s = 1;
};

inline float scale_to(double largest, float amax) {
  if (amax == 0) return 1.0f;
  return std::min(float(largest) / amax, 3.4028234663852886e38f);
}

// The scale of one block. x is multiplied by `multiply`, then divided by `divide`, before rounding;
// `stored` is the scale (float or byte) in memory, `decode` the factor of the decoded number.
struct BlockReference {
  float multiply = 1, divide = 1;
  double stored = 0, decode = 1;
};
inline BlockReference block_reference(const QuantFormat& f, float s, float amax) {
  const std::vector<double>& numbers = format_numbers(f.element);
  BlockReference b;
  if (f.scale == ScaleKind::kTensor) {
    b.multiply = s;
  } else if (f.scale == ScaleKind::k1x128 || f.scale == ScaleKind::k128x128) {
    b.multiply = scale_to(numbers.back(), amax);
    if (f.scale_rounding == ScaleRounding::kPowerOfTwo) {
      b.multiply = float(std::exp2(std::floor(std::log2(double(b.multiply)))));
    }
    b.stored = b.decode = double(1.0f / b.multiply);
  } else if (f.scale == ScaleKind::k1x32) {
    int k = amax == 0 ? 0 : -127;
    while (k < 127 && std::ldexp(numbers.back(), k) < double(amax)) ++k;
    b.stored = k + 127;
    b.decode = std::ldexp(1.0, k);
    b.multiply = float(std::ldexp(1.0, -k));
  } else {
    const std::vector<double>& scales = format_numbers(ElementFormat::kE4M3);
    const int code = nearest_code(scales, double(amax * s / float(numbers.back())));
    b.stored = code;
    b.decode = scales[size_t(code)];
    b.multiply = s;
    b.divide = float(b.decode);
  }
  return b;
}

inline QuantisedMatrix quantised(const QuantFormat& f, const std::vector<float>& x, int64_t lines,
                                 int64_t k, float amax, const RandomKey& key) {
  const std::vector<double>& numbers = format_numbers(f.element);
  const BlockShape shape = block_shape(f.scale);
  const int64_t blocks = ceil_div(k, shape.columns);
  const double largest = numbers.back() * (f.scale == ScaleKind::kTensor ? 1 : 448);
  QuantisedMatrix q;
  q.s = has_tensor_scale(f.scale) ? double(scale_to(largest, amax)) : 1.0;
  q.codes.resize(x.size());
  q.values.resize(x.size());
  q.scales.resize(size_t(ceil_div(lines, shape.lines) * blocks));
  for (size_t b = 0; b < q.scales.size(); ++b) {
    const int64_t line = int64_t(b) / blocks * shape.lines,
                  at = int64_t(b) % blocks * shape.columns;
    std::vector<int64_t> inside;
    for (int64_t l = line; l < std::min(lines, line + shape.lines); ++l) {
      for (int64_t i = at; i < std::min(k, at + shape.columns); ++i) inside.push_back(l * k + i);
    }
    float most = 0;
    for (const int64_t i : inside) most = std::max(most, std::abs(x[size_t(i)]));
    const BlockReference scale = block_reference(f, float(q.s), most);
    q.scales[b] = scale.stored;
    for (const int64_t i : inside) {
      const float product = x[size_t(i)] * scale.multiply;
      const double y = scale.divide == 0 ? 0.0 : double(product / scale.divide);
      const int code = f.rounding == Rounding::kNearest
                           ? nearest_code(numbers, std::abs(y))
                           : drawn_code(numbers, std::abs(y), draw_half(key, i));
      const int sign = f.element == ElementFormat::kE2M1 ? 8 : 128;
      q.codes[size_t(i)] = code + (std::signbit(y) ? sign : 0);
      q.values[size_t(i)] = std::copysign(numbers[size_t(code)] * scale.decode, y);
    }
  }
  return q;
}

// Recursive form of ops/quantise/hadamard16.h: the transform of 2 n numbers from those of their two
// halves.
inline std::vector<float> walsh(const std::vector<float>& x) {
  if (x.size() == 1) return x;
  const size_t half = x.size() / 2;
  const std::vector<float> low = walsh({x.begin(), x.begin() + long(half)});
  const std::vector<float> high = walsh({x.begin() + long(half), x.end()});
  std::vector<float> y(x.size());
  for (size_t i = 0; i < half; ++i) {
    y[i] = low[i] + high[i];
    y[i + half] = low[i] - high[i];
  }
  return y;
}

// x (R, C) transposed to (C, R padded to 16), with every 16 elements of a line rotated.
inline std::vector<float> rotated_columns(const std::vector<float>& x, int64_t rows,
                                          int64_t columns, uint32_t signs, int64_t padded) {
  std::vector<float> y(size_t(columns * padded), 0.0f);
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t g = 0; g < ceil_div(rows, 16); ++g) {
      std::vector<float> v(16, 0.0f);
      for (int64_t i = 0; i < 16 && 16 * g + i < rows; ++i) {
        const float value = x[size_t((16 * g + i) * columns + c)];
        v[size_t(i)] = signs >> i & 1 ? -value : value;
      }
      const std::vector<float> t = walsh(v);
      for (int64_t i = 0; i < 16; ++i) y[size_t(c * padded + 16 * g + i)] = 0.25f * t[size_t(i)];
    }
  }
  return y;
}

}  // namespace assay::ref
