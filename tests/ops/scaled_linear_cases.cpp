#include <cmath>

#include "ops/scaled_linear.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ops/quantise_case.h"
#include "tests/ref/linear.h"
#include "tests/ref/quantise.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

using Scales = ScaleKind;
constexpr QuantFormat coded(ElementFormat element, Scales scale) {
  return {.element = element, .scale = scale, .layout = ScaleLayout::kHardware};
}
constexpr QuantFormat kE4M3 = coded(ElementFormat::kE4M3, Scales::kTensor);
constexpr QuantFormat kE5M2 = coded(ElementFormat::kE5M2, Scales::kTensor);
constexpr QuantFormat kLine = coded(ElementFormat::kE4M3, Scales::k1x128);
constexpr QuantFormat kSquare = coded(ElementFormat::kE4M3, Scales::k128x128);
constexpr QuantFormat kMx = coded(ElementFormat::kE4M3, Scales::k1x32);
constexpr QuantFormat kNv = coded(ElementFormat::kE2M1, Scales::k1x16);
constexpr QuantFormat kNvSquare = coded(ElementFormat::kE2M1, Scales::k16x16);

struct Pair {
  const char* name;
  QuantFormat left, right;
};
constexpr Pair kTensorPair{"e4m3", kE4M3, kE4M3};
constexpr Pair kGradientPair{"e5m2 e4m3", kE5M2, kE4M3};
constexpr Pair kForwardPair{"1x128 128x128", kLine, kSquare};
constexpr Pair kWgradPair{"1x128 1x128", kLine, kLine};
constexpr Pair kMxPair{"mxfp8", kMx, kMx};
constexpr Pair kNvPair{"nvfp4", kNv, kNvSquare};

enum class Add { kNone, kInPlace };
struct Shape {
  Pair pair;
  int64_t rows, out, k;
  Add add = Add::kNone;
};
std::string shape_name(const Shape& s) {
  return std::string(" ") + s.pair.name + " N=" + std::to_string(s.rows) +
         " out=" + std::to_string(s.out) + " K=" + std::to_string(s.k) +
         (s.add == Add::kInPlace ? " add in place" : "");
}

// A matrix of any codes and scales, and what they stand for.
struct Coded {
  CodedMatrix matrix;
  std::vector<double> numbers;       // by code, without the sign
  std::vector<double> block_scales;  // plain order
  double tensor = 1;

  double value(int64_t line, int64_t at) const {
    const QuantFormat& f = matrix.format;
    const int64_t k = matrix.k(), i = line * k + at;
    const int fourbit = f.element == ElementFormat::kE2M1;
    const int code = fourbit ? matrix.codes[i / 2] >> (i % 2 * 4) & 15 : matrix.codes[i];
    const int sign = fourbit ? 8 : 128;
    const double magnitude = numbers[size_t(code % sign)];
    const BlockShape shape = block_shape(f.scale);
    const double block = f.scale == Scales::kTensor
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

uint8_t finite_code(ElementFormat element, uint32_t random) {
  if (element == ElementFormat::kE2M1) return uint8_t(random);
  const uint8_t sign = uint8_t(random & 128), most = element == ElementFormat::kE4M3 ? 126 : 123;
  return uint8_t(sign | (random & 127) % (most + 1));
}

Coded coded_matrix(Workbench& bench, const std::string& name, const QuantFormat& f, int64_t lines,
                   int64_t k) {
  const auto codes = bench.in<uint8_t, 2>(name + " codes", {lines, code_bytes(f.element, k)});
  const RandomKey key{5, stream_id(name), 0};
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
  const std::vector<double> bytes = ref::format_numbers(ElementFormat::kE4M3);
  for (int64_t b = 0; b < blocks && f.scale != Scales::kTensor; ++b) {
    const int draw = int(random_word({6, stream_id(name), 0}, uint64_t(b)) >> 9) % 9;
    if (has_float_scales(f.scale)) {
      stored.push_back(std::ldexp(1.0 + draw / 16.0, draw - 4));
      made.block_scales.push_back(stored.back());
    } else if (f.scale == Scales::k1x32) {
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
    const auto scale = bench.in<float, 1>(name + " tensor scale", {2}, normal(0.1, 0.7));
    made.matrix.tensor_scale = scale;
    made.tensor = double(scale[1]);
  }
  bench.commit();
  return made;
}

template <typename Y>
OpInstance instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const Coded left = coded_matrix(*bench, "left", s.pair.left, s.rows, s.k);
  const Coded right = coded_matrix(*bench, "right", s.pair.right, s.out, s.k);
  const bool in_place = s.add == Add::kInPlace;
  ScaledLinear<Y> a{.y = in_place ? bench->acc<Y, 2>("y", {s.rows, s.out}, normal(1000))
                                  : bench->out<Y, 2>("y", {s.rows, s.out}),
                    .left = left.matrix,
                    .right = right.matrix};
  if (in_place) a.add = a.y;
  const auto looked = sample(s.rows, double(s.out * s.k)), columns = sample(s.out, double(s.k));
  const auto start = in_place ? chosen_doubles(a.y, looked) : std::vector<double>();
  const auto check = [=](Report& report) {
    const auto x = left.rows(looked), w = right.rows(columns);
    const ref::Linear<double> linear{int64_t(looked.size()), int64_t(columns.size()), s.k};
    auto want = linear.forward(x, w), size = linear.forward(absolute(x), absolute(w));
    if (in_place) {
      const auto begin = select_columns(start, s.out, columns);
      want = added(want, begin);
      size = added(size, absolute(begin));
    }
    Chosen<Y> got;
    for (const int64_t row : looked) {
      for (const int64_t c : columns) got.values.push_back(a.y.at(row, c));
    }
    report.near("y", got.view(), want, [&](int64_t i) {
      return tol::rounding<Y>(want[size_t(i)]) + tol::sum(double(s.k) + 1, size[size_t(i)]) +
             tol::short_accumulators(double(s.k), size[size_t(i)]);
    });
  };
  return {bench, [a, bench](Exec on) { scaled_linear<Y>(on, bench->located(a)); }, check,
          scaled_linear_cost(a)};
}

template <typename Y>
void add_case(std::vector<OpCase>& cases, const Shape& s, CaseSize size) {
  const bool blackwell = !scaled_linear_problem(s.pair.left, s.pair.right, 90).empty();
  cases.push_back({"scaled_linear", std::string("scaled_linear ") + dtype_name<Y>() + shape_name(s),
                   [s] { return instance<Y>(s); }, OpBody::kGpu, size, blackwell ? 100 : 0});
}

}  // namespace

std::vector<OpCase> scaled_linear_cases() {
  std::vector<OpCase> cases;
  for (const Shape& s : {
           Shape{kTensorPair,   16,  16,  16 },
           Shape{kTensorPair,   67,  48,  80 },
           Shape{kGradientPair, 130, 32,  272},
           Shape{kForwardPair,  70,  144, 256},
           Shape{kForwardPair,  33,  256, 640},
           Shape{kMxPair,       140, 48,  160},
           Shape{kNvPair,       140, 48,  144},
  }) {
    add_case<bf16>(cases, s, CaseSize::kUsual);
  }
  for (const Shape& s : {
           Shape{kGradientPair, 48,  80,  96,  Add::kInPlace},
           Shape{kWgradPair,    144, 272, 384, Add::kInPlace},
           Shape{kMxPair,       64,  48,  96,  Add::kInPlace},
           Shape{kNvPair,       64,  48,  96,  Add::kInPlace},
  }) {
    add_case<float>(cases, s, CaseSize::kUsual);
  }
  // The products of the speedrun model's block: fprop and wgrad.
  for (const auto& [out, in] : {
           std::pair<int64_t, int64_t>{2304, 768 },
            {768,  768 },
            {6144, 768 },
            {768,  3072}
  }) {
    for (const Pair& pair : {kTensorPair, kForwardPair}) {
      add_case<bf16>(cases, {pair, 16384, out, in}, CaseSize::kLarge);
    }
    for (const Pair& pair : {kGradientPair, kWgradPair}) {
      add_case<float>(cases, {pair, out, in, 16384, Add::kInPlace}, CaseSize::kLarge);
    }
  }
  for (const Pair& pair : {kTensorPair, kForwardPair}) {
    add_case<bf16>(cases, {pair, 8192, 8192, 8192}, CaseSize::kLarge);
  }
  return cases;
}

}  // namespace assay
