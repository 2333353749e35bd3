#include "ops/swiglu.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/swiglu.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Shape {
  int64_t rows, width;
  double std = 2.0;
  bool asks_amax() const { return rows % 2 == 1; }
};

std::string shape_name(const Shape& s) {
  return " M=" + std::to_string(s.rows) + " F=" + std::to_string(s.width) +
         (s.std > 10 ? " extreme" : "");
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  SwigluForward<T> a{.h = bench->out<T, 2>("h", {s.rows, s.width}),
                     .gate_up = bench->in<T, 2>("gate_up", {s.rows, 2 * s.width}, normal(s.std))};
  if (s.asks_amax()) a.amax = amax_word(*bench);
  const auto check = [=](Report& report) {
    check_amax(report, a.amax, a.h);
    const auto rows = wide_sample(s.rows, 2.0 * double(s.width));
    const auto want =
        ref::Swiglu<double>{int64_t(rows.size()), s.width}.forward(chosen_doubles(a.gate_up, rows));
    // The errors of exp, division and two products. For very negative gates sigmoid underflows,
    // which loses at most |g u| 2^-126.
    auto h_rows = chosen_rows(a.h.data, s.width, rows);
    report.near("h", h_rows.view(), want, [&](int64_t i) {
      const double h = want[size_t(i)];
      return tol::rounding<T>(h) + tol::elementary(3, h) + 0x1p-100 * s.std * s.std;
    });
  };
  return {bench, [a, bench](Exec on) { swiglu_forward<T>(on, bench->located(a)); }, check,
          swiglu_forward_cost(a)};
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  SwigluBackward<T> a{.dgate_up = bench->out<T, 2>("dgate_up", {s.rows, 2 * s.width}),
                      .dh = bench->in<T, 2>("dh", {s.rows, s.width}),
                      .gate_up = bench->in<T, 2>("gate_up", {s.rows, 2 * s.width}, normal(s.std))};
  if (s.asks_amax()) a.amax = amax_word(*bench);
  const auto check = [=](Report& report) {
    check_amax(report, a.amax, a.dgate_up);
    const auto rows = wide_sample(s.rows, 2.0 * double(s.width));
    const auto dh = chosen_doubles(a.dh, rows), gate_up = chosen_doubles(a.gate_up, rows);
    const auto want = ref::Swiglu<double>{int64_t(rows.size()), s.width}.backward(dh, gate_up);
    auto dgate_up = chosen_rows(a.dgate_up.data, 2 * s.width, rows);
    report.near("dgate_up", dgate_up.view(), want, [&](int64_t i) {
      const int64_t row = i / (2 * s.width), f = i % (2 * s.width) % s.width;
      const double d = std::abs(dh[size_t(row * s.width + f)]);
      const double g = std::abs(gate_up[size_t(2 * row * s.width + f)]);
      const double u = std::abs(gate_up[size_t((2 * row + 1) * s.width + f)]);
      // The two terms of silu' may cancel (g about -1.28), and 1 - sigmoid cancels for large g.
      const bool is_gate = i % (2 * s.width) < s.width;
      const double parts = is_gate ? d * u * (1 + g) : std::abs(want[size_t(i)]);
      return tol::rounding<T>(want[size_t(i)]) + tol::elementary(4, parts) +
             0x1p-100 * s.std * s.std;
    });
  };
  return {bench, [a, bench](Exec on) { swiglu_backward<T>(on, bench->located(a)); }, check,
          swiglu_backward_cost(a)};
}

// One non-finite number: the amax slot must show what was stored.
OpInstance not_finite_instance(float bad) {
  auto bench = std::make_shared<Workbench>();
  const SwigluForward<bf16> a{.h = bench->out<bf16, 2>("h", {9, 40}),
                              .amax = amax_word(*bench),
                              .gate_up = bench->in<bf16, 2>("gate_up", {9, 80})};
  const_cast<bf16&>(a.gate_up.at(8, 79)) = bf16(bad);
  bench->commit();
  const auto check = [a, bad](Report& report) {
    check_amax(report, a.amax, a.h);
    report.below("amax differs", std::isnan(a.amax[0]) == std::isnan(bad) ? 0 : 1, 0.5);
  };
  return {bench, [a, bench](Exec on) { swiglu_forward<bf16>(on, bench->located(a)); }, check,
          swiglu_forward_cost(a)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const auto gate_up = Workbench::doubles(bench->in<float, 2>("gate_up", {3, 10}, normal(2.0)));
  const auto dh = Workbench::doubles(bench->in<float, 2>("dh", {3, 5}));
  const auto check = [=](Report& report) {
    const auto dgate_up = ref::Swiglu<double>{3, 5}.backward(dh, gate_up);
    const auto loss = [&](const ref::ComplexVector& z) {
      const auto h = ref::Swiglu<ref::Complex>{3, 5}.forward(z);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dh.size(); ++i) sum += dh[i] * h[i];
      return sum;
    };
    report.below("dgate_up by complex step", ref::complex_step_error(loss, gate_up, dgate_up),
                 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{0, 64}, Shape{1, 1}, Shape{7, 65}, Shape{5, 8}, Shape{33, 100, 80.0},
                         Shape{129, 384}, Shape{2048, 768}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back(
        {"swiglu_forward", "swiglu_forward" + suffix, [s] { return forward_instance<T>(s); }});
    cases.push_back(
        {"swiglu_backward", "swiglu_backward" + suffix, [s] { return backward_instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  const Shape s{65536, 3072};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(large("swiglu_forward", "swiglu_forward" + suffix,
                        [s] { return forward_instance<bf16>(s); }));
  cases.push_back(large("swiglu_backward", "swiglu_backward" + suffix,
                        [s] { return backward_instance<bf16>(s); }));
}

}  // namespace

std::vector<OpCase> swiglu_cases() {
  std::vector<OpCase> cases{
      {"swiglu_reference", "swiglu_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    cases.push_back({"swiglu_forward", "swiglu_forward of " + std::to_string(bad),
                     [bad] { return not_finite_instance(bad); }});
  }
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
