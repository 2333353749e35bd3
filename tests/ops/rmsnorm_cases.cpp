#include "ops/rmsnorm.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/rmsnorm.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Shape {
  int64_t rows, width;
  bool branch;
  bool asks_amax() const { return rows % 2 == 1; }
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
  if (s.asks_amax()) a.amax = amax_word(*bench);
  const auto check = [a, s](Report& report) {
    check_amax(report, a.amax, a.y);
    const auto rows = wide_sample(s.rows, double(s.width));
    std::vector<double> r = chosen_doubles(a.x, rows);
    if (s.branch) {
      const auto branch = chosen_doubles(a.branch, rows);
      std::vector<double> want = r;
      for (size_t i = 0; i < r.size(); ++i) want[i] += 0.375 * branch[i];
      auto resid = chosen_rows(a.resid.data, s.width, rows);
      report.near("resid", resid.view(), want, [&](int64_t i) {
        return tol::rounding<T>(want[size_t(i)]) + tol::sum(2, std::abs(r[size_t(i)]) + 1);
      });
      r = chosen_doubles(a.resid, rows);  // the stored residual, which y must normalise
    }
    ref::RmsNorm<double> norm{int64_t(rows.size()), s.width, double(a.eps), {}, {}};
    norm.forward(r, Workbench::doubles(a.weight));
    auto rstd = chosen_rows(a.rstd.data, 1, rows);
    report.near("rstd", rstd.view(), norm.rstd,
                [&](int64_t i) { return tol::sum(double(s.width), norm.rstd[size_t(i)]); });
    auto y = chosen_rows(a.y.data, s.width, rows);
    report.near("y", y.view(), norm.y, [&](int64_t i) {
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
  if (s.asks_amax()) a.amax = amax_word(*bench);
  if (s.branch) {
    a.dbranch = bench->out<T, 2>("dbranch", {s.rows, s.width});
    a.gain = 0.375f;
  }
  // Runs the reference row by row.
  const auto weight = Workbench::doubles(a.weight);
  ref::RmsNorm<double> norm{1, s.width, 1e-5, {}, {}};
  for (int64_t i = 0; i < s.rows; ++i) {
    norm.forward(chosen_doubles(a.resid, {i}), weight);
    const_cast<float*>(a.rstd.data)[i] = float(norm.rstd[0]);
  }
  bench->commit();
  const auto rows = wide_sample(s.rows, double(s.width));
  const auto dresid0 = chosen_doubles(a.dresid, rows), dweight0 = Workbench::doubles(a.dweight);
  const auto check = [=](Report& report) mutable {
    std::vector<double> dr, dw(weight.size(), 0.0), abs_dw(weight.size(), 0.0), rstd;
    for (int64_t i = 0; i < s.rows; ++i) {
      const auto resid = chosen_doubles(a.resid, {i}), dy = chosen_doubles(a.dy, {i});
      std::vector<double> dr_row, dw_row;
      norm.forward(resid, weight);
      norm.backward(resid, weight, dy, dr_row, dw_row);
      for (size_t c = 0; c < dw.size(); ++c) {
        dw[c] += dw_row[c];
        abs_dw[c] += std::abs(dy[c] * resid[c]) * norm.rstd[0];
      }
      if (rstd.size() == rows.size() || rows[rstd.size()] != i) continue;
      dr.insert(dr.end(), dr_row.begin(), dr_row.end());
      rstd.push_back(norm.rstd[0]);
    }
    for (size_t i = 0; i < dr.size(); ++i) dr[i] += dresid0[i];
    for (size_t c = 0; c < dw.size(); ++c) dw[c] += dweight0[c];
    const auto near_dresid = [&](int64_t i) {
      const double scale = rstd[size_t(i / s.width)] * 4;  // 4: a typical |w dy| + |rhat mean|
      return tol::rounding<T>(dr[size_t(i)]) +
             tol::sum(double(s.width), scale + std::abs(dresid0[size_t(i)]));
    };
    auto dresid = chosen_rows(a.dresid.data, s.width, rows);
    report.near("dresid", dresid.view(), dr, near_dresid);
    report.near("dweight", a.dweight, dw, [&](int64_t c) {
      return tol::sum(double(s.rows) + 1, abs_dw[size_t(c)] + std::abs(dweight0[size_t(c)]));
    });
    check_amax(report, a.amax, s.branch ? a.dbranch : a.dresid);
    if (s.branch) {
      std::vector<double> want = chosen_doubles(a.dresid, rows);
      for (double& x : want) x *= 0.375;
      auto dbranch = chosen_rows(a.dbranch.data, s.width, rows);
      report.near("dbranch", dbranch.view(), want,
                  [&](int64_t i) { return tol::rounding<T>(want[size_t(i)]); });
    }
  };
  return {bench, [a, bench](Exec on) { rmsnorm_backward<T>(on, bench->located(a)); }, check,
          rmsnorm_backward_cost(a)};
}

// One non-finite number: the amax slot must show what was stored.
OpInstance not_finite_instance(float bad, int64_t width) {
  auto bench = std::make_shared<Workbench>();
  const int64_t rows = 67;
  RmsNormBackward<bf16> a{
      .dresid = bench->acc<bf16, 2>("dresid", {rows, width}),
      .dbranch = bench->out<bf16, 2>("dbranch", {rows, width}),
      .amax = amax_word(*bench),
      .dweight = bench->acc<float, 1>("dweight", {width}),
      .partial = bench->tmp<float, 2>("partial", {rmsnorm_backward_blocks(rows), width}),
      .dy = bench->in<bf16, 2>("dy", {rows, width}),
      .resid = bench->in<bf16, 2>("resid", {rows, width}),
      .weight = bench->in<float, 1>("weight", {width}),
      .rstd = bench->in<float, 1>("rstd", {rows}),
      .gain = 0.375f};
  a.dresid.at(rows - 1, width - 1) = bf16(bad);
  bench->commit();
  const auto check = [a, bad](Report& report) {
    check_amax(report, a.amax, a.dbranch);
    report.below("amax is finite", std::isfinite(a.amax[0]) ? 1 : 0, 0.5);
    report.below("amax differs", std::isnan(a.amax[0]) == std::isnan(bad) ? 0 : 1, 0.5);
  };
  return {bench, [a, bench](Exec on) { rmsnorm_backward<bf16>(on, bench->located(a)); }, check,
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
  for (const Shape& s : {Shape{1, 1, false}, Shape{1, 64, true}, Shape{7, 65, false},
                         Shape{67, 256, true}, Shape{129, 100, true}, Shape{70, 768, true},
                         Shape{33, 768, false}, Shape{19, 1000, true}, Shape{2048, 256, true},
                         // Even numbers of rows are without an amax: rows of bf16 in registers.
                         Shape{70, 768, false}, Shape{20, 1000, true}, Shape{18, 392, false},
                         // Partial sums of 34 blocks, which 32 warps do not divide evenly.
                         Shape{2113, 16, true}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back(
        {"rmsnorm_forward", "rmsnorm_forward" + suffix, [s] { return forward_instance<T>(s); }});
    cases.push_back(
        {"rmsnorm_backward", "rmsnorm_backward" + suffix, [s] { return backward_instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  // 2048 columns: more than a GPU keeps in registers.
  for (const Shape& s : {Shape{65536, 768, true}, Shape{16384, 2048, true}}) {
    const std::string suffix = " bf16" + shape_name(s);
    cases.push_back(large("rmsnorm_forward", "rmsnorm_forward" + suffix,
                          [s] { return forward_instance<bf16>(s); }));
    cases.push_back(large("rmsnorm_backward", "rmsnorm_backward" + suffix,
                          [s] { return backward_instance<bf16>(s); }));
  }
}

}  // namespace

std::vector<OpCase> rmsnorm_cases() {
  std::vector<OpCase> cases{
      {"rmsnorm_reference", "rmsnorm_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const int64_t width : {100, 256}) {
      cases.push_back({"rmsnorm_backward",
                       "rmsnorm_backward of " + std::to_string(bad) + " C=" + std::to_string(width),
                       [=] { return not_finite_instance(bad, width); }});
    }
  }
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
