#include "ops/rmsnorm.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/rmsnorm.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Shape {
  int64_t rows, width;
  bool branch;
};

std::string shape_name(const Shape& s) {
  return " N=" + std::to_string(s.rows) + " C=" + std::to_string(s.width) +
         (s.branch ? " residual" : "");
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  RmsNormForward<T> a{.y = bench->out<T, 2>("y", {s.rows, s.width}),
                      .rstd = bench->out<float, 1>("rstd", {s.rows}),
                      .x = bench->in<T, 2>("x", {s.rows, s.width}),
                      .weight = bench->in<float, 1>("weight", {s.width}, normal(0.3, 1.0))};
  if (s.branch) {
    a.resid = bench->out<T, 2>("resid", {s.rows, s.width});
    a.branch = bench->in<T, 2>("branch", {s.rows, s.width});
    a.gain = 0.375f;
  }
  const auto check = [a, s](Report& report) {
    std::vector<double> r = Workbench::doubles(a.x);
    if (s.branch) {
      const auto branch = Workbench::doubles(a.branch);
      std::vector<double> want = r;
      for (size_t i = 0; i < r.size(); ++i) want[i] += 0.375 * branch[i];
      report.near("resid", a.resid, want, [&](int64_t i) {
        return tol::rounding<T>(want[size_t(i)]) + tol::sum(2, std::abs(r[size_t(i)]) + 1);
      });
      r = Workbench::doubles(a.resid);  // what y must be the norm of
    }
    ref::RmsNorm<double> norm{s.rows, s.width, double(a.eps), {}, {}};
    norm.forward(r, Workbench::doubles(a.weight));
    report.near("rstd", a.rstd, norm.rstd,
                [&](int64_t i) { return tol::sum(double(s.width), norm.rstd[size_t(i)]); });
    report.near("y", a.y, norm.y, [&](int64_t i) {
      const double y = norm.y[size_t(i)];
      return tol::rounding<T>(y) + tol::sum(double(s.width), y);
    });
  };
  return {bench, [a, bench](Exec on) { rmsnorm_forward<T>(on, bench->located(a)); }, check,
          rmsnorm_forward_cost(a)};
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  RmsNormBackward<T> a{
      .dresid = bench->acc<T, 2>("dresid", {s.rows, s.width}),
      .dweight = bench->acc<float, 1>("dweight", {s.width}),
      .partial = bench->tmp<float, 2>("partial", {rmsnorm_backward_blocks(s.rows), s.width}),
      .dy = bench->in<T, 2>("dy", {s.rows, s.width}),
      .resid = bench->in<T, 2>("resid", {s.rows, s.width}),
      .weight = bench->in<float, 1>("weight", {s.width}, normal(0.3, 1.0)),
      .rstd = bench->in<float, 1>("rstd", {s.rows})};
  if (s.branch) {
    a.dbranch = bench->out<T, 2>("dbranch", {s.rows, s.width});
    a.gain = 0.375f;
  }
  ref::RmsNorm<double> norm{s.rows, s.width, 1e-5, {}, {}};
  norm.forward(Workbench::doubles(a.resid), Workbench::doubles(a.weight));
  for (int64_t i = 0; i < s.rows; ++i) {
    const_cast<float*>(a.rstd.data)[i] = float(norm.rstd[size_t(i)]);
  }
  bench->commit();
  const auto dresid0 = Workbench::doubles(a.dresid), dweight0 = Workbench::doubles(a.dweight);
  const auto check = [=](Report& report) mutable {
    std::vector<double> dr, dw;
    const auto resid = Workbench::doubles(a.resid), weight = Workbench::doubles(a.weight);
    const auto dy = Workbench::doubles(a.dy);
    norm.backward(resid, weight, dy, dr, dw);
    std::vector<double> abs_dw(dw.size(), 0.0);
    for (size_t i = 0; i < dy.size(); ++i) {
      abs_dw[i % dw.size()] += std::abs(dy[i] * resid[i]) * norm.rstd[i / dw.size()];
    }
    for (size_t i = 0; i < dr.size(); ++i) dr[i] += dresid0[i];
    for (size_t c = 0; c < dw.size(); ++c) dw[c] += dweight0[c];
    const auto near_dresid = [&](int64_t i) {
      const double scale = norm.rstd[size_t(i / s.width)] * 4;  // |w dy| + |rhat mean|, typical
      return tol::rounding<T>(dr[size_t(i)]) +
             tol::sum(double(s.width), scale + std::abs(dresid0[size_t(i)]));
    };
    report.near("dresid", a.dresid, dr, near_dresid);
    report.near("dweight", a.dweight, dw, [&](int64_t c) {
      return tol::sum(double(s.rows) + 1, abs_dw[size_t(c)] + std::abs(dweight0[size_t(c)]));
    });
    if (s.branch) {
      std::vector<double> want = Workbench::doubles(a.dresid);
      for (double& x : want) x *= 0.375;
      report.near("dbranch", a.dbranch, want,
                  [&](int64_t i) { return tol::rounding<T>(want[size_t(i)]); });
    }
  };
  return {bench, [a, bench](Exec on) { rmsnorm_backward<T>(on, bench->located(a)); }, check,
          rmsnorm_backward_cost(a)};
}

// The reference's gradient against complex step: L = sum coefficient * y.
OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const int64_t rows = 3, width = 5;
  const auto r = Workbench::doubles(bench->in<float, 2>("r", {rows, width}));
  const auto weight = Workbench::doubles(bench->in<float, 1>("w", {width}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {rows, width}));
  const auto check = [=](Report& report) {
    ref::RmsNorm<double> norm{rows, width, 1e-5, {}, {}};
    norm.forward(r, weight);
    std::vector<double> dr, dw;
    norm.backward(r, weight, dy, dr, dw);
    const auto loss = [&](const ref::ComplexVector& r_, const ref::ComplexVector& w_) {
      ref::RmsNorm<ref::Complex> n{rows, width, 1e-5, {}, {}};
      n.forward(r_, w_);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * n.y[i];
      return sum;
    };
    const ref::ComplexVector rc(r.begin(), r.end()), wc(weight.begin(), weight.end());
    report.below("dr by complex step",
                 ref::complex_step_error([&](const auto& z) { return loss(z, wc); }, r, dr), 1e-13);
    report.below("dw by complex step",
                 ref::complex_step_error([&](const auto& z) { return loss(rc, z); }, weight, dw),
                 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {
           Shape{1,    1,   false},
           Shape{1,    64,  true },
           Shape{7,    65,  false},
           Shape{67,   256, true },
           Shape{129,  100, true },
           Shape{2048, 256, true }
  }) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back(
        {"rmsnorm_forward", "rmsnorm_forward" + suffix, [s] { return forward_instance<T>(s); }});
    cases.push_back(
        {"rmsnorm_backward", "rmsnorm_backward" + suffix, [s] { return backward_instance<T>(s); }});
  }
}

}  // namespace

std::vector<OpCase> rmsnorm_cases() {
  std::vector<OpCase> cases{
      {"rmsnorm_reference", "rmsnorm_reference complex step", reference_instance}
  };
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  return cases;
}

}  // namespace assay
