// tol::short_accumulators() against a model of such sums, on the operands of the cases of
// scaled_linear and grouped_scaled. The SIMT emulator adds in float, so no other test on a CPU has
// the losses of a GPU's tensor cores.
//
// A step of 32 products, as published for Hopper's FP8 tensor cores: the exact products and the
// running sum are shifted to the largest exponent among them and truncated below 2^-13 of it; their
// sum is truncated to 13 bits of fraction.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/catch.h"
#include "tests/ops/coded_case.h"
#include "tests/tolerance.h"

namespace assay {
namespace {

constexpr size_t kStep = 32, kStage = 128;
constexpr int kBits = 13;

double cut(double x, double unit) {
  return std::trunc(x / unit) * unit;
}

// Numbers and exponents of one line of codes. The exponent is the code's own; subnormal numbers
// have the smallest normal exponent.
struct Line {
  std::vector<double> number, scale;  // scale: one per stage
  std::vector<int> exponent;

  Line(const Coded& of, int64_t line) {
    const auto& f = of.matrix.format;
    const bool e4m3 = f.element == ElementFormat::kE4M3;
    const int64_t k = of.matrix.k();
    for (int64_t at = 0; at < k; ++at) {
      const int code = of.matrix.codes[line * k + at], magnitude = code % 128;
      number.push_back((code < 128 ? 1 : -1) * of.numbers[size_t(magnitude)]);
      exponent.push_back(std::max(magnitude >> (e4m3 ? 3 : 2), 1) - (e4m3 ? 7 : 15));
    }
    const int64_t stages = ceil_div(k, int64_t(kStage)), row = line / block_shape(f.scale).lines;
    for (int64_t stage = 0; stage < stages; ++stage) {
      scale.push_back(
          f.scale == ScaleKind::kTensor ? 1 : of.block_scales[size_t(row * stages + stage)]);
    }
  }
};

struct Sums {
  double got, want, size;
};
// promoted: number of products after which the sum is added to a float.
Sums short_sums(const Line& a, const Line& b, size_t promoted) {
  const size_t k = a.number.size();
  float total = 0;
  double part = 0, want = 0, size = 0;
  for (size_t begin = 0; begin < k; begin += kStep) {
    const size_t end = std::min(begin + kStep, k);
    int largest = part == 0 ? -1000 : std::ilogb(part);
    for (size_t i = begin; i < end; ++i) {
      if (a.number[i] * b.number[i] != 0)
        largest = std::max(largest, a.exponent[i] + b.exponent[i]);
    }
    const double unit = std::ldexp(1, largest - kBits);
    const double scale = a.scale[begin / kStage] * b.scale[begin / kStage];
    double sum = cut(part, unit);
    for (size_t i = begin; i < end; ++i) {
      const double product = a.number[i] * b.number[i];
      sum += cut(product, unit);
      want += product * scale;
      size += std::abs(product * scale);
    }
    part = sum == 0 ? 0 : cut(sum, std::ldexp(1, std::ilogb(sum) - kBits));
    if (end % promoted == 0 || end == k) {
      total = std::fmaf(float(part), float(scale), total);
      part = 0;
    }
  }
  return {total, want, size};
}

constexpr size_t kNever = 1 << 20;  // CodedSums::kFast

struct Shape {
  // The cases' names of the operands, which determine the codes.
  const char *left_name, *right_name;
  QuantFormat left, right;
  int64_t k;
  size_t promoted;
};

// The largest loss as a share of the tolerance.
double worst_use(const Coded& left, const Coded& right, int64_t lines, size_t promoted) {
  std::vector<Line> a, b;
  for (int64_t i = 0; i < lines; ++i) {
    a.emplace_back(left, i);
    b.emplace_back(right, i);
  }
  double worst = 0;
  for (const Line& x : a) {
    for (const Line& w : b) {
      const Sums sums = short_sums(x, w, promoted);
      const double allowed =
          tol::sum(double(left.matrix.k()) + 1, sums.size) + tol::short_accumulators(sums.size);
      worst = std::max(worst, std::abs(sums.got - sums.want) / allowed);
    }
  }
  return worst;
}

TEST_CASE("the loss of short accumulators is within the tolerance") {
  double worst_of_all = 0;
  for (const Shape& s : {
           Shape{"left", "right", kE4M3, kE4M3, 16, kStage},
           Shape{"left", "right", kE4M3, kE4M3, 80, kStage},
           Shape{"left", "right", kE5M2, kE4M3, 96, kStage},
           Shape{"left", "right", kE5M2, kE4M3, 272, kStage},
           Shape{"left", "right", kLine, kSquare, 256, kStage},
           Shape{"left", "right", kLine, kSquare, 640, kStage},
           Shape{"left", "right", kLine, kLine, 384, kStage},
           Shape{"left", "right", kE4M3, kE4M3, 3072, kStage},
           Shape{"x", "weight", kE4M3, kE4M3, 144, kStage},
           Shape{"x", "weight", kE5M2, kE4M3, 32, kStage},
           Shape{"x", "weight", kLine, kSquare, 1024, kStage},
           Shape{"left", "right", kE4M3, kE4M3, 272, kNever},
           Shape{"left", "right", kE4M3, kE4M3, 768, kNever},
       }) {
    constexpr int64_t kLines = 80;
    Workbench bench;
    const Coded left = coded_matrix(bench, s.left_name, s.left, kLines, s.k);
    const Coded right = coded_matrix(bench, s.right_name, s.right, kLines, s.k);
    const double worst = worst_use(left, right, kLines, s.promoted);
    CAPTURE(s.left.element, s.left.scale, s.k, s.promoted, worst);
    REQUIRE(worst < 0.8);
    worst_of_all = std::max(worst_of_all, worst);
  }
  REQUIRE(worst_of_all > 0.4);
}

TEST_CASE("in grouped_scaled's case for it, sums without promotion lose more than the tolerance") {
  Workbench bench;
  const Coded x = coded_matrix(bench, "x", kE4M3, 1, 1024);
  const Coded weight = coded_matrix(bench, "weight", kE4M3, 1, 1024);
  fill_for_promotion(bench, x.matrix, weight.matrix);
  REQUIRE(worst_use(x, weight, 1, kStage) < 0.01);
  const Sums lost = short_sums(Line(x, 0), Line(weight, 0), kNever);
  // The rounding of a result to bf16 does not hide the loss.
  REQUIRE(std::abs(lost.got - lost.want) >
          1.25 * (tol::short_accumulators(lost.size) + tol::rounding<bf16>(lost.want)));
}

}  // namespace
}  // namespace assay
