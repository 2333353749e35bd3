// Shared by the case lists of native products: their formats, and matrices of random codes and
// scales.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "ops/scaled_linear.h"
#include "tests/ops/op_case.h"
#include "tests/ops/quantise_case.h"
#include "tests/ref/quantise.h"

namespace assay {

constexpr QuantFormat coded(ElementFormat element, ScaleKind scale) {
  return {.element = element, .scale = scale, .layout = ScaleLayout::kHardware};
}
inline constexpr QuantFormat kE4M3 = coded(ElementFormat::kE4M3, ScaleKind::kTensor);
inline constexpr QuantFormat kE5M2 = coded(ElementFormat::kE5M2, ScaleKind::kTensor);
inline constexpr QuantFormat kLine = coded(ElementFormat::kE4M3, ScaleKind::k1x128);
inline constexpr QuantFormat kSquare = coded(ElementFormat::kE4M3, ScaleKind::k128x128);
inline constexpr QuantFormat kMx = coded(ElementFormat::kE4M3, ScaleKind::k1x32);
inline constexpr QuantFormat kNv = coded(ElementFormat::kE2M1, ScaleKind::k1x16);
inline constexpr QuantFormat kNvSquare = coded(ElementFormat::kE2M1, ScaleKind::k16x16);

// A matrix of random codes and scales, and the values they represent.
struct Coded {
  CodedMatrix matrix;
  std::vector<double> numbers;       // the number of each code without sign
  std::vector<double> block_scales;  // decode factors in plain order
  double tensor = 1;

  double value(int64_t line, int64_t at) const {
    const QuantFormat& f = matrix.format;
    const int64_t k = matrix.k(), i = line * k + at;
    const int fourbit = f.element == ElementFormat::kE2M1;
    const int code = fourbit ? matrix.codes[i / 2] >> (i % 2 * 4) & 15 : matrix.codes[i];
    const int sign = fourbit ? 8 : 128;
    const double magnitude = numbers[size_t(code % sign)];
    const BlockShape shape = block_shape(f.scale);
    const double block = f.scale == ScaleKind::kTensor
                             ? 1
                             : block_scales[size_t(line / shape.lines * ceil_div(k, shape.columns) +
                                                   at / shape.columns)];
    return (code >= sign ? -magnitude : magnitude) * block * tensor;
  }
  std::vector<double> rows(const std::vector<int64_t>& lines) const {
    std::vector<double> values;
    for (const int64_t line : lines) {
      for (int64_t at = 0; at < matrix.k(); ++at) values.push_back(value(line, at));
    }
    return values;
  }
};

inline uint8_t finite_code(ElementFormat element, uint32_t random) {
  if (element == ElementFormat::kE2M1) return uint8_t(random);
  const uint8_t sign = uint8_t(random & 128), most = element == ElementFormat::kE4M3 ? 126 : 123;
  return uint8_t(sign | (random & 127) % (most + 1));
}

// Draws codes (lines, K) and scales in the layout of f. unit: a power of two that multiplies all
// values.
inline Coded coded_matrix(Workbench& bench, const std::string& name, const QuantFormat& f,
                          int64_t lines, int64_t k, double unit = 1) {
  const auto codes = bench.in<uint8_t, 2>(name + " codes", {lines, code_bytes(f.element, k)});
  const RandomKey key{5, stream_id(name), 0};
#pragma omp parallel for schedule(static) if (codes.size() > 1 << 16)
  for (int64_t i = 0; i < codes.size(); ++i) {
    codes[i] = finite_code(f.element, random_word(key, uint64_t(i)) >> 7);
  }
  Coded made;
  made.matrix.format = f;
  made.matrix.codes = codes;
  made.numbers = ref::format_numbers(f.element);
  const BlockShape shape = block_shape(f.scale);
  const int64_t blocks = ceil_div(lines, shape.lines) * ceil_div(k, shape.columns);
  std::vector<double> stored;
  const std::vector<double>& bytes = ref::format_numbers(ElementFormat::kE4M3);
  for (int64_t b = 0; b < blocks && f.scale != ScaleKind::kTensor; ++b) {
    const int draw = int(random_word({6, stream_id(name), 0}, uint64_t(b)) >> 9) % 9;
    if (has_float_scales(f.scale)) {
      stored.push_back(unit * std::ldexp(1.0 + draw / 16.0, draw - 4));
      made.block_scales.push_back(stored.back());
    } else if (f.scale == ScaleKind::k1x32) {
      stored.push_back(123 + draw);
      made.block_scales.push_back(std::ldexp(1.0, draw - 4));
    } else {
      stored.push_back(40 + 3 * draw);
      made.block_scales.push_back(bytes[size_t(40 + 3 * draw)]);
    }
  }
  const std::vector<double> places = laid_out(f, stored, lines, k);
  const int64_t count = scale_count(f, lines, k);
  if (has_float_scales(f.scale)) {
    const auto scales = bench.in<float, 1>(name + " scales", {count});
    for (int64_t i = 0; i < count; ++i) scales[i] = float(places[size_t(i)]);
    made.matrix.scales = scales;
  }
  if (has_byte_scales(f.scale)) {
    const auto scales = bench.in<uint8_t, 1>(name + " scales", {count});
    for (int64_t i = 0; i < count; ++i) scales[i] = uint8_t(places[size_t(i)]);
    made.matrix.scale_codes = scales;
  }
  if (has_tensor_scale(f.scale)) {
    const auto scale =
        bench.in<float, 1>(name + " tensor scale", {2}, normal(0.1 * unit, 0.7 * unit));
    made.matrix.tensor_scale = scale;
    made.tensor = double(scale[0]);
  }
  bench.commit();
  return made;
}

// Sets codes whose sum needs promotion: one product of the first stage and one of the last cancel,
// and are 2^17 times the products of the stages between, which are 1 each. Sums kept in 14 bits
// over all stages lose the small products.
inline void fill_for_promotion(Workbench& bench, const CodedMatrix& x, const CodedMatrix& weight) {
  constexpr uint8_t kOne = 0x38, kLargest = 0x7E, kSign = 0x80;
  constexpr int64_t kStage = 128;
  for (const CodedMatrix* m : {&x, &weight}) {
    const int64_t k = m->k();
    auto* const codes = const_cast<uint8_t*>(m->codes.data);
    for (int64_t i = 0; i < m->codes.size(); ++i) {
      const int64_t at = i % k, stage = at / kStage;
      const bool outer = stage == 0 || stage == k / kStage - 1;
      const uint8_t outer_code = at % kStage == 0 ? kLargest : 0;
      codes[i] = outer ? outer_code | (m == &x && stage > 0 && outer_code ? kSign : 0) : kOne;
    }
  }
  bench.commit();
}

}  // namespace assay
