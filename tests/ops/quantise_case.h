// Shared by the case lists of the quantisers: the recipes' formats, a matrix whose blocks have
// different magnitudes, packed codes, and the hardware's layouts of scales by enumeration.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/quantise.h"
#include "tests/ops/op_case.h"

namespace assay {

struct NamedFormat {
  const char* name;
  QuantFormat format;
};
inline const std::vector<NamedFormat> kRecipeFormats{
    {"fp8 tensor", {ElementFormat::kE4M3, ScaleKind::kTensor}},
    {"fp8 gradient", {ElementFormat::kE5M2, ScaleKind::kTensor}},
    {"fp8 block", {ElementFormat::kE4M3, ScaleKind::k1x128}},
    {"fp8 weight", {ElementFormat::kE4M3, ScaleKind::k128x128}},
    {"mxfp8", {ElementFormat::kE4M3, ScaleKind::k1x32}},
    {"mxfp4", {ElementFormat::kE2M1, ScaleKind::k1x32}},
    {"nvfp4", {ElementFormat::kE2M1, ScaleKind::k1x16}},
    {"nvfp4 weight", {ElementFormat::kE2M1, ScaleKind::k16x16}},
};

// Buffers of one quantised copy (lines, k); `amax` is the input of formats with a tensor scale.
inline QuantisedCopy copy_buffers(Workbench& bench, const std::string& name, const QuantFormat& f,
                                  int64_t lines, int64_t k, float amax) {
  QuantisedCopy copy{.codes =
                         bench.out<uint8_t, 2>(name + " codes", {lines, code_bytes(f.element, k)})};
  const int64_t scales = scale_count(f, lines, k);
  if (has_float_scales(f.scale)) copy.scales = bench.out<float, 1>(name + " scales", {scales});
  if (has_byte_scales(f.scale))
    copy.scale_codes = bench.out<uint8_t, 1>(name + " scales", {scales});
  if (has_tensor_scale(f.scale)) {
    copy.tensor_scale = bench.out<float, 1>(name + " tensor scale", {2});
    const View<float, 1> most = bench.in<float, 1>(name + " amax", {1});
    most[0] = amax;
    copy.amax = most;
    bench.commit();
  }
  copy.key = {7, stream_id(name), 3};
  return copy;
}

// Normal numbers whose magnitude varies by row and block; some stretches are 0.
template <typename T>
View<T, 2> uneven_matrix(Workbench& bench, const std::string& name, int64_t rows, int64_t columns) {
  const View<T, 2> x = bench.in<T, 2>(name, {rows, columns});
#pragma omp parallel for schedule(static) if (rows * columns > 1 << 16)
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int power = int((r * 5 + c / 16 * 3) % 11) - 6;
      const bool zero = r % 32 >= 16 && c % 64 >= 32 && c < 512;
      x.at(r, c) = T(zero ? 0.0f : std::ldexp(float(x.at(r, c)), power));
    }
  }
  bench.commit();
  return x;
}

template <typename T>
std::vector<float> floats(const View<const T, 2>& x) {
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(float(x[i]));
  return values;
}
inline float largest_of(const std::vector<float>& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  return most;
}

inline std::vector<double> packed_codes(ElementFormat element, const std::vector<int>& codes) {
  std::vector<double> bytes;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (element != ElementFormat::kE2M1) {
      bytes.push_back(codes[i]);
    } else if (i % 2 == 1) {
      bytes.push_back(codes[i - 1] + 16 * codes[i]);
    }
  }
  return bytes;
}

// Scales from plain order to the format's layout, with 0 as padding.
inline std::vector<double> laid_out(const QuantFormat& f, const std::vector<double>& plain,
                                    int64_t lines, int64_t k) {
  if (f.layout == ScaleLayout::kPlain) return plain;
  const BlockShape shape = block_shape(f.scale);
  const int64_t blocks = ceil_div(k, shape.columns);
  std::vector<double> out;
  const auto take = [&](int64_t line, int64_t block) {
    const bool inside = line < lines && block < blocks;
    out.push_back(inside ? plain[size_t(line / shape.lines * blocks + block)] : 0.0);
  };
  const auto up = [](int64_t n, int64_t to) { return ceil_div(n, to) * to; };
  if (f.scale == ScaleKind::k1x128) {
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t l = 0; l < up(lines, 4); ++l) take(l, b);
  } else if (f.scale == ScaleKind::k128x128) {
    for (int64_t l = 0; l < lines; l += 128)
      for (int64_t b = 0; b < up(blocks, 4); ++b) take(l, b);
  } else if (f.scale != ScaleKind::kTensor) {
    for (int64_t l = 0; l < lines; l += 128)
      for (int64_t b = 0; b < blocks; b += 4)
        for (int64_t low = 0; low < 32; ++low)
          for (int64_t i = 0; i < 16; ++i) take(l + low + i / 4 * 32, b + i % 4);
  }
  return out;
}

// True for the formats whose kernels are timed on a GPU.
inline bool timed_at_large(const NamedFormat& n) {
  const std::string name = n.name;
  return name == "fp8 tensor" || name == "fp8 block" || name == "fp8 weight" || name == "mxfp8" ||
         name == "nvfp4";
}

// Large cases of fake_quantise, for the bench, checked against quantise and dequantise
// (fake_quantise_cases.cpp).
std::vector<OpCase> large_fake_quantise_cases();

}  // namespace assay
