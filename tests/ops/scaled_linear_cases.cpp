#include "cuda/matmul.h"
#include "ops/scaled_linear.h"
#include "tests/ops/coded_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/linear.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

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
  CodedSums sums = CodedSums::kPromoted;
};
std::string shape_name(const Shape& s) {
  return std::string(" ") + s.pair.name + " N=" + std::to_string(s.rows) +
         " out=" + std::to_string(s.out) + " K=" + std::to_string(s.k) +
         (s.add == Add::kInPlace ? " add in place" : "") +
         (s.sums == CodedSums::kFast ? " fast" : "");
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
                    .right = right.matrix,
                    .sums = s.sums};
  if (in_place) a.add = a.y;
  const auto looked = sample(s.rows, double(s.out * s.k)), columns = sample(s.out, double(s.k));
  const auto start = in_place ? chosen_doubles(a.y, looked) : std::vector<double>();
  const auto check = [=](Report& report) {
    const auto x = left.rows(looked), w = right.rows(columns);
    const ref::Linear<double> linear{int64_t(looked.size()), int64_t(columns.size()), s.k};
    auto want = linear.forward(x, w);
    const auto products = linear.forward(absolute(x), absolute(w));
    auto size = products;
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
             tol::short_accumulators(products[size_t(i)]);
    });
  };
  return {bench, [a, bench](Exec on) { scaled_linear<Y>(on, bench->located(a)); }, check,
          scaled_linear_cost(a), [](Backend) { return gpu::kMatmulWorkspaceBytes; }};
}

template <typename Y>
void add_case(std::vector<OpCase>& cases, const Shape& s, CaseSize size) {
  const auto runs = [&](int capability) {
    return scaled_linear_problem(s.pair.left, s.pair.right, capability).empty();
  };
  cases.push_back({"scaled_linear", std::string("scaled_linear ") + dtype_name<Y>() + shape_name(s),
                   [s] { return instance<Y>(s); }, OpBody::kGpu, size,
                   runs(89)   ? 89
                   : runs(90) ? 90
                              : 100,
                   runs(100) ? 1000 : 90});
}

}  // namespace

std::vector<OpCase> scaled_linear_cases() {
  std::vector<OpCase> cases;
  for (const Shape& s : {
           Shape{kTensorPair, 16, 16, 16},
           Shape{kTensorPair, 67, 48, 80},
           Shape{kGradientPair, 130, 32, 272},
           Shape{kForwardPair, 80, 144, 256},
           Shape{kForwardPair, 48, 256, 640},
           Shape{kMxPair, 140, 48, 160},
           Shape{kNvPair, 140, 48, 160},
       }) {
    add_case<bf16>(cases, s, CaseSize::kUsual);
  }
  for (const Shape& s : {
           Shape{kGradientPair, 48, 80, 96, Add::kInPlace},
           Shape{kWgradPair, 144, 272, 384, Add::kInPlace},
           Shape{kMxPair, 64, 48, 96, Add::kInPlace},
           Shape{kNvPair, 64, 48, 96, Add::kInPlace},
       }) {
    add_case<float>(cases, s, CaseSize::kUsual);
  }
  // The products of the speedrun model's block: fprop and wgrad.
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{2304, 768}, {768, 768}, {6144, 768}, {768, 3072}}) {
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
  add_case<bf16>(cases, {kTensorPair, 67, 48, 272, Add::kNone, CodedSums::kFast}, CaseSize::kUsual);
  add_case<bf16>(cases, {kTensorPair, 16384, 768, 3072, Add::kNone, CodedSums::kFast},
                 CaseSize::kLarge);
  return cases;
}

}  // namespace assay
