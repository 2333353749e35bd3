#include "ops/adamw.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/adamw.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

enum class State { kFirst, kUnderWay };
enum class Emit { kNone, kWeight };
enum class Squares { kNone, kAsked };

struct Setup {
  int64_t n;
  int64_t step;
  float lr, weight_decay;
  State state;
  Emit emit;
  float grad_scale;  // 1: none given
  Squares squares = Squares::kNone;
};

// The elements of the checked pieces: all pieces, or a sample in large cases.
std::vector<int64_t> looked_elements(int64_t n) {
  std::vector<int64_t> elements;
  for (const int64_t piece : wide_sample(adamw_pieces(n), double(kAdamWPiece))) {
    const int64_t end = std::min(n, (piece + 1) * kAdamWPiece);
    for (int64_t i = piece * kAdamWPiece; i < end; ++i) elements.push_back(i);
  }
  return elements;
}
std::vector<double> elements_of(View<const float, 1> v, const std::vector<int64_t>& elements) {
  return chosen_doubles(View<const float, 2>{v.data, {v.size(), 1}}, elements);
}

// Checks the sums of each checked piece, computed from the reference's p before and after the step.
template <typename T>
void check_squares(Report& report, const AdamW<T>& a, const std::vector<double>& before,
                   const std::vector<double>& grad, const std::vector<double>& after) {
  const auto pieces = wide_sample(adamw_pieces(a.grad.size()), double(kAdamWPiece));
  std::vector<double> want(3 * pieces.size(), 0.0);
  for (size_t i = 0; i < grad.size(); ++i) {
    double* sums = want.data() + 3 * (int64_t(i) / kAdamWPiece);
    const double off = before[i] - after[i];
    sums[0] += grad[i] * grad[i];
    sums[1] += off * off;
    sums[2] += after[i] * after[i];
  }
  auto squares = chosen_rows(a.squares.data, 3, pieces);
  report.near("squares", squares.view(), want,
              [&](int64_t i) { return tol::elementary(8, want[size_t(i)]); });
}

template <typename T>
OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  const bool first = s.state == State::kFirst;
  AdamW<T> a{.master = bench->acc<float, 1>("master", {s.n}),
             .m = bench->acc<float, 1>("m", {s.n}, first ? Fill{Fill::kZero} : normal(0.1)),
             .v = bench->acc<float, 1>("v", {s.n}, first ? Fill{Fill::kZero} : normal()),
             .grad = bench->in<float, 1>("grad", {s.n}),
             .lr = s.lr,
             .weight_decay = s.weight_decay,
             .step = s.step};
  if (s.emit == Emit::kWeight) a.weight = bench->out<T, 1>("weight", {s.n});
  if (s.grad_scale != 1.0f) {
    a.grad_scale = bench->in<float, 1>("grad_scale", {1}, normal(0, s.grad_scale));
  }
  if (s.squares == Squares::kAsked) {
    a.squares = bench->out<double, 2>("squares", {adamw_pieces(s.n), 3});
  }
  for (int64_t i = 0; i < s.n; ++i) a.v[i] = a.v[i] * a.v[i];
  bench->commit();

  const auto at = looked_elements(s.n);
  const auto p0 = elements_of(a.master, at), m0 = elements_of(a.m, at);
  const auto v0 = elements_of(a.v, at), grad = elements_of(a.grad, at);
  const auto check = [=](Report& report) {
    std::vector<double> p(p0.size()), m(p0.size()), v(p0.size());
    for (size_t i = 0; i < p.size(); ++i) {
      ref::AdamW x{p0[i], m0[i], v0[i]};
      x.step(grad[i] * double(s.grad_scale), a.lr, a.beta1, a.beta2, a.eps, a.weight_decay, a.step);
      p[i] = x.p;
      m[i] = x.m;
      v[i] = x.v;
    }
    auto got_m = chosen_rows(a.m.data, 1, at);
    report.near("m", got_m.view(), m, [&](int64_t i) {
      return tol::sum(2, std::abs(m0[size_t(i)]) + std::abs(grad[size_t(i)]));
    });
    auto got_v = chosen_rows(a.v.data, 1, at);
    report.near("v", got_v.view(), v, [&](int64_t i) { return tol::sum(3, v[size_t(i)]); });
    // The tolerance uses the largest possible update: m0 and g may cancel in m, but not in the
    // error of m.
    const double correction = 1 - std::pow(a.beta1, double(s.step));
    auto got_master = chosen_rows(a.master.data, 1, at);
    report.near("master", got_master.view(), p, [&](int64_t i) {
      const size_t j = size_t(i);
      const double reach = (std::abs(m0[j]) + std::abs(grad[j]) * s.grad_scale) / correction;
      const double root = std::sqrt(v[j] / (1 - std::pow(a.beta2, double(s.step)))) + a.eps;
      return tol::rounding<float>(p[j]) + tol::elementary(1, a.lr * a.weight_decay * p0[j]) +
             tol::elementary(4, a.lr * reach / root);
    });
    if (!a.squares.empty()) check_squares(report, a, p0, grad, p);
    if (!a.weight.empty()) {
      std::vector<double> rounded = elements_of(a.master, at);
      for (double& x : rounded) x = double(float(T(float(x))));
      auto weight = chosen_rows(a.weight.data, 1, at);
      report.equal("weight", weight.view(), rounded);
    }
  };
  return {bench, [a, bench](Exec on) { adamw<T>(on, bench->located(a)); }, check, adamw_cost(a)};
}

// With zero moments the first step moves every weight by lr, for any size of the gradient.
OpInstance first_step_instance() {
  auto bench = std::make_shared<Workbench>();
  const AdamW<float> a{.master = bench->acc<float, 1>("master", {1000}, Fill{Fill::kZero}),
                       .m = bench->acc<float, 1>("m", {1000}, Fill{Fill::kZero}),
                       .v = bench->acc<float, 1>("v", {1000}, Fill{Fill::kZero}),
                       .grad = bench->in<float, 1>("grad", {1000}, normal(1e-3)),
                       .lr = 0.25f,
                       .eps = 1e-20f,
                       .step = 1};
  const auto check = [a](Report& report) {
    std::vector<double> want;
    for (int64_t i = 0; i < 1000; ++i) want.push_back(a.grad[i] > 0 ? -0.25 : 0.25);
    report.near("master", a.master, want, [](int64_t) { return tol::elementary(4, 0.25); });
  };
  return {bench, [a, bench](Exec on) { adamw<float>(on, bench->located(a)); }, check, {}};
}

template <typename T>
std::string case_name(const Setup& s) {
  return std::string("adamw ") + dtype_name<T>() + " n=" + std::to_string(s.n) + " step " +
         std::to_string(s.step) + (s.emit == Emit::kWeight ? " weight" : "") +
         (s.grad_scale != 1.0f ? " scaled" : "") + (s.squares == Squares::kAsked ? " squares" : "");
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Setup& s :
       {Setup{1, 1, 1e-3f, 0.1f, State::kFirst, Emit::kWeight, 1.0f, Squares::kNone},
        Setup{0, 1, 1e-3f, 0.1f, State::kFirst, Emit::kWeight, 1.0f, Squares::kNone},
        Setup{77, 1, 1e-3f, 0.0f, State::kFirst, Emit::kNone, 1.0f, Squares::kNone},
        Setup{16385, 2, 3e-2f, 0.1f, State::kUnderWay, Emit::kWeight, 0.03125f, Squares::kNone},
        Setup{100003, 1000, 1e-3f, 0.1f, State::kUnderWay, Emit::kNone, 0.5f, Squares::kNone},
        Setup{2000001, 100000, 1e-4f, 0.1f, State::kUnderWay, Emit::kWeight, 1.0f, Squares::kNone},
        Setup{33000, 3, 3e-2f, 0.1f, State::kUnderWay, Emit::kWeight, 0.25f, Squares::kAsked},
        Setup{5, 1, 1e-3f, 0.0f, State::kFirst, Emit::kNone, 1.0f, Squares::kAsked}}) {
    cases.push_back({"adamw", case_name<T>(s), [s] { return instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  for (const Squares squares : {Squares::kNone, Squares::kAsked}) {
    const Setup s{32000000, 1000, 1e-3f, 0.1f, State::kUnderWay, Emit::kWeight, 0.5f, squares};
    cases.push_back(large("adamw", case_name<bf16>(s), [s] { return instance<bf16>(s); }));
  }
}

}  // namespace

std::vector<OpCase> adamw_cases() {
  std::vector<OpCase> cases{{"adamw", "adamw first step moves by lr", first_step_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
