#include "ops/linear.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/linear.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

enum class Add { kNone, kOther, kInPlace };

struct Shape {
  int64_t rows, out, in;
  Add add = Add::kNone;
  Scaled scaled = Scaled::kNo;
};

std::string shape_name(const Shape& s) {
  const char* adds[] = {"", " add", " add in place"};
  return " N=" + std::to_string(s.rows) + " out=" + std::to_string(s.out) +
         " in=" + std::to_string(s.in) + adds[int(s.add)] + scaled_name(s.scaled);
}

// The result y (rows, width), the matrix `add`, the checked rows, and the values that they start
// from.
template <typename Y>
struct Target {
  View<Y, 2> y;
  View<const Y, 2> add = {};
  std::vector<int64_t> looked;
  std::vector<double> start;
};
template <typename Y>
Target<Y> target(Workbench& bench, const std::string& name, const Shape& s, int64_t width) {
  const Add add = s.add;
  const int64_t rows = s.rows;
  Target<Y> t;
  t.looked = sample(rows, double(s.out * s.in));
  if (add == Add::kInPlace) {
    t.y = bench.acc<Y, 2>(name, {rows, width});
    t.add = t.y;
  } else {
    t.y = bench.out<Y, 2>(name, {rows, width});
    if (add == Add::kOther) t.add = bench.in<Y, 2>("add", {rows, width});
  }
  t.start = add == Add::kNone ? std::vector<double>(t.looked.size() * size_t(width), 0.0)
                              : chosen_doubles(t.add, t.looked);
  return t;
}

// Extra error of adding in place on a GPU: the library's kernels for Hopper round the product to Y
// before they add it to the result.
template <typename Y>
double rounded_product(Add add, double want, double start) {
  return add == Add::kInPlace ? tol::rounding<Y>(std::abs(want) + std::abs(start)) : 0;
}

// Tolerance of one value: k products plus the start, rounded to Y.
template <typename Y>
auto product_rule(int64_t k, const std::vector<double>& want, const std::vector<double>& size,
                  Add add, const std::vector<double>& start) {
  return [=, &want, &size, &start](int64_t i) {
    return tol::rounding<Y>(want[size_t(i)]) + tol::sum(double(k) + 1, size[size_t(i)]) +
           rounded_product<Y>(add, want[size_t(i)], start[size_t(i)]);
  };
}

template <typename T>
auto workspace_of(int64_t rows, int64_t in) {
  return [=](Backend backend) { return linear_workspace_bytes<T>(backend, rows, in); };
}

template <typename T, typename Y>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto t = target<Y>(*bench, "y", s, s.out);
  const LinearForward<T, Y> a{.y = t.y,
                              .x = bench->in<T, 2>("x", {s.rows, s.in}),
                              .weight = packed_weight<T>(*bench, s.out, s.in),
                              .add = t.add,
                              .scale = product_scale(*bench, s.scaled)};
  const auto check = [a, s, rows = t.looked, begin = t.start](Report& report) {
    const ref::Linear<double> linear{int64_t(rows.size()), s.out, s.in, reference_scale(a.scale)};
    const auto x = chosen_doubles(a.x, rows), weight = Workbench::doubles(a.weight.plain);
    const auto want = added(linear.forward(x, weight), begin);
    const auto size = added(linear.forward(absolute(x), absolute(weight)), absolute(begin));
    auto got = chosen_rows(a.y.data, s.out, rows);
    report.near("y", got.view(), want, product_rule<Y>(s.in, want, size, s.add, begin));
  };
  return {bench, [a, bench](Exec on) { linear_forward<T, Y>(on, bench->located(a)); }, check,
          linear_forward_cost(a), workspace_of<T>(s.rows, s.in)};
}

template <typename T>
OpInstance dgrad_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto t = target<T>(*bench, "dx", s, s.in);
  const LinearDgrad<T> a{.dx = t.y,
                         .dy = bench->in<T, 2>("dy", {s.rows, s.out}),
                         .weight = packed_weight<T>(*bench, s.out, s.in),
                         .add = t.add,
                         .scale = product_scale(*bench, s.scaled)};
  const auto check = [a, s, rows = t.looked, begin = t.start](Report& report) {
    const ref::Linear<double> linear{int64_t(rows.size()), s.out, s.in, reference_scale(a.scale)};
    const auto dy = chosen_doubles(a.dy, rows), weight = Workbench::doubles(a.weight.plain);
    const auto want = added(linear.dgrad(dy, weight), begin);
    const auto size = added(linear.dgrad(absolute(dy), absolute(weight)), absolute(begin));
    auto got = chosen_rows(a.dx.data, s.in, rows);
    report.near("dx", got.view(), want, product_rule<T>(s.out, want, size, s.add, begin));
  };
  return {bench, [a, bench](Exec on) { linear_dgrad<T>(on, bench->located(a)); }, check,
          linear_dgrad_cost(a), workspace_of<T>(s.rows, s.in)};
}

template <typename T>
OpInstance wgrad_instance(const Shape& s, GradientSum sum = GradientSum::kAdd) {
  auto bench = std::make_shared<Workbench>();
  const bool stores = sum == GradientSum::kStore;
  const LinearWgrad<T> a{.dweight = stores ? bench->out<float, 2>("dweight", {s.out, s.in})
                                           : bench->acc<float, 2>("dweight", {s.out, s.in}),
                         .dy = bench->in<T, 2>("dy", {s.rows, s.out}),
                         .x = bench->in<T, 2>("x", {s.rows, s.in}),
                         .scale = product_scale(*bench, s.scaled),
                         .sum = sum};
  const auto outs = sample(s.out, double(s.rows * s.in));
  const auto begin = stores ? std::vector<double>(outs.size() * size_t(s.in), 0.0)
                            : chosen_doubles(a.dweight, outs);
  const auto check = [a, s, outs, begin](Report& report) {
    const ref::Linear<double> linear{s.rows, int64_t(outs.size()), s.in, reference_scale(a.scale)};
    const auto dy = chosen_columns(a.dy, outs), x = Workbench::doubles(a.x);
    const auto want = added(linear.wgrad(dy, x), begin);
    const auto size = added(linear.wgrad(absolute(dy), absolute(x)), absolute(begin));
    auto got = chosen_rows(a.dweight.data, s.in, outs);
    report.near("dweight", got.view(), want,
                product_rule<float>(s.rows, want, size, Add::kNone, begin));
  };
  return {bench, [a, bench](Exec on) { linear_wgrad<T>(on, bench->located(a)); }, check,
          linear_wgrad_cost(a), workspace_of<T>(s.rows, s.in)};
}

// The header's bitwise promises: rows in three calls give the bits of one call; for dweight, cut at
// multiples of 32 and without a scale. y in float shows differences that bf16 rounds away.
template <typename T, typename Y>
OpInstance split_rows_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const int64_t rows = s.rows, out = s.out, in = s.in;
  const int64_t cuts[] = {0, 2, 100, rows}, wgrad_cuts[] = {0, 32, 96, rows};
  const auto x = bench->in<T, 2>("x", {rows, in}), dy = bench->in<T, 2>("dy", {rows, out});
  const auto weight = packed_weight<T>(*bench, out, in);
  const auto scale = product_scale(*bench, s.scaled);
  const auto y = bench->out<Y, 2>("y", {rows, out});
  const auto dx = bench->out<T, 2>("dx", {rows, in});
  const auto dweight = bench->acc<float, 2>("dweight", {out, in}, normal(0));
  const auto y_cut = bench->out<Y, 2>("y_cut", {rows, out});
  const auto dx_cut = bench->out<T, 2>("dx_cut", {rows, in});
  const auto dweight_cut = bench->acc<float, 2>("dweight_cut", {out, in}, normal(0));
  const auto run = [=](Exec on) {
    linear_forward<T, Y>(
        on, bench->located(LinearForward<T, Y>{.y = y, .x = x, .weight = weight, .scale = scale}));
    linear_dgrad<T>(
        on, bench->located(LinearDgrad<T>{.dx = dx, .dy = dy, .weight = weight, .scale = scale}));
    linear_wgrad<T>(on, bench->located(LinearWgrad<T>{.dweight = dweight, .dy = dy, .x = x}));
    for (int c = 0; c < 3; ++c) {
      const int64_t begin = cuts[c], count = cuts[c + 1] - cuts[c];
      const auto x_part = x.rows(begin, count), dy_part = dy.rows(begin, count);
      linear_forward<T, Y>(
          on, bench->located(LinearForward<T, Y>{
                  .y = y_cut.rows(begin, count), .x = x_part, .weight = weight, .scale = scale}));
      linear_dgrad<T>(
          on,
          bench->located(LinearDgrad<T>{
              .dx = dx_cut.rows(begin, count), .dy = dy_part, .weight = weight, .scale = scale}));
      const int64_t first = wgrad_cuts[c], number = wgrad_cuts[c + 1] - first;
      linear_wgrad<T>(on, bench->located(LinearWgrad<T>{.dweight = dweight_cut,
                                                        .dy = dy.rows(first, number),
                                                        .x = x.rows(first, number)}));
    }
  };
  const auto check = [=](Report& report) {
    report.equal("y", y_cut, Workbench::doubles(y));
    report.equal("dx", dx_cut, Workbench::doubles(dx));
    report.equal("dweight", dweight_cut, Workbench::doubles(dweight));
  };
  return {bench, run, check, {}, workspace_of<T>(rows, in)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const ref::Linear<double> linear{3, 4, 5, 0.7};
  const auto x = Workbench::doubles(bench->in<float, 2>("x", {3, 5}));
  const auto weight = Workbench::doubles(bench->in<float, 2>("w", {4, 5}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {3, 4}));
  const auto check = [=](Report& report) {
    const auto loss = [&](const ref::ComplexVector& x_, const ref::ComplexVector& w_) {
      const auto y = ref::Linear<ref::Complex>{3, 4, 5, 0.7}.forward(x_, w_);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const ref::ComplexVector xc(x.begin(), x.end()), wc(weight.begin(), weight.end());
    const auto of_x = [&](const auto& z) { return loss(z, wc); };
    const auto of_w = [&](const auto& z) { return loss(xc, z); };
    report.below("dx by complex step", ref::complex_step_error(of_x, x, linear.dgrad(dy, weight)),
                 1e-13);
    report.below("dw by complex step", ref::complex_step_error(of_w, weight, linear.wgrad(dy, x)),
                 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

// Odd sizes, and whole blocks of the CPU's matrix unit, in several passes over k and in one.
template <typename T, typename Y>
void add_split_rows(std::vector<OpCase>& cases, const std::string& type) {
  for (Shape s : {Shape{131, 71, 67}, Shape{131, 256, 1088}, Shape{160, 96, 256}}) {
    for (const Scaled scaled : {Scaled::kNo, Scaled::kBoth}) {
      s.scaled = scaled;
      cases.push_back({"linear_split_rows", "linear_split_rows " + type + shape_name(s),
                       [s] { return split_rows_instance<T, Y>(s); }, OpBody::kCpu});
    }
  }
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  const std::string type = std::string(" ") + dtype_name<T>();
  const auto add = [&](const Shape& s) {
    const std::string suffix = type + shape_name(s);
    cases.push_back(
        {"linear_forward", "linear_forward" + suffix, [s] { return forward_instance<T, T>(s); }});
    cases.push_back(
        {"linear_dgrad", "linear_dgrad" + suffix, [s] { return dgrad_instance<T>(s); }});
    if (s.add != Add::kNone) return;
    cases.push_back(
        {"linear_wgrad", "linear_wgrad" + suffix, [s] { return wgrad_instance<T>(s); }});
    if (s.rows > 1100) return;
    cases.push_back({"linear_wgrad", "linear_wgrad stored" + suffix,
                     [s] { return wgrad_instance<T>(s, GradientSum::kStore); }});
  };
  for (const Shape& s : {
           Shape{1, 1, 1, Add::kNone},           Shape{1, 64, 65, Add::kNone},
           Shape{7, 33, 2, Add::kNone},          Shape{13, 130, 31, Add::kNone},
           Shape{67, 100, 259, Add::kOther},     Shape{100, 4, 256, Add::kNone},
           Shape{193, 256, 1100, Add::kInPlace}, Shape{131, 2100, 96, Add::kNone},
           Shape{368, 1056, 544, Add::kOther},   Shape{368, 96, 1184, Add::kNone},
           Shape{288, 512, 1088, Add::kNone},    Shape{288, 512, 1088, Add::kInPlace},
           Shape{5, 2304, 256, Add::kNone},      Shape{2048, 768, 256, Add::kNone},
           Shape{2048, 256, 256, Add::kNone},    Shape{2048, 1536, 256, Add::kNone},
           Shape{2048, 256, 768, Add::kNone},    Shape{512, 8192, 256, Add::kNone},
           Shape{2048, 256, 256, Add::kInPlace},
       }) {
    add(s);
  }
  // With a scale: sizes that are and are not multiples of a tile, and sums of more than one pass.
  for (const Shape& s : {
           Shape{13, 130, 31, Add::kNone, Scaled::kLeft},
           Shape{64, 128, 96, Add::kNone, Scaled::kBoth},
           Shape{1100, 33, 40, Add::kNone, Scaled::kRight},
           Shape{67, 100, 259, Add::kOther, Scaled::kBoth},
           Shape{33, 48, 1100, Add::kInPlace, Scaled::kRight},
           Shape{2048, 768, 256, Add::kNone, Scaled::kBoth},
           Shape{13, 130, 31, Add::kNone, Scaled::kGain},
           Shape{67, 100, 259, Add::kOther, Scaled::kGain},
           Shape{64, 72, 96, Add::kInPlace, Scaled::kGain},
           Shape{1100, 33, 40, Add::kNone, Scaled::kAll},
       }) {
    add(s);
  }
  add_split_rows<T, T>(cases, dtype_name<T>());
}

// The products of the speedrun model's block, and a large one that shows the peak speed.
void add_large_cases(std::vector<OpCase>& cases) {
  std::vector<Shape> shapes{
      {16384, 2304, 768},
      {16384, 768, 768},
      {16384, 6144, 768},
      {16384, 768, 3072},
  };
  shapes.push_back({16384, 2304, 768, Add::kNone, Scaled::kBoth});
  for (const Shape& s : shapes) {
    const std::string suffix = " bf16" + shape_name(s);
    cases.push_back(large("linear_forward", "linear_forward" + suffix,
                          [s] { return forward_instance<bf16, bf16>(s); }));
    cases.push_back(
        large("linear_dgrad", "linear_dgrad" + suffix, [s] { return dgrad_instance<bf16>(s); }));
    cases.push_back(
        large("linear_wgrad", "linear_wgrad" + suffix, [s] { return wgrad_instance<bf16>(s); }));
  }
  const Shape square{8192, 8192, 8192};
  cases.push_back(large("linear_forward", "linear_forward bf16" + shape_name(square),
                        [square] { return forward_instance<bf16, bf16>(square); }));
}

}  // namespace

std::vector<OpCase> linear_cases() {
  std::vector<OpCase> cases{
      {"linear_reference", "linear_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_split_rows<bf16, float>(cases, "bf16 to float");
  for (const Shape& s : {
           Shape{7, 5, 31, Add::kNone, Scaled::kNo},
           Shape{2048, 4, 256, Add::kNone, Scaled::kNo},
           Shape{2048, 64, 256, Add::kNone, Scaled::kNo},
           Shape{100, 300, 200, Add::kOther, Scaled::kNo},
           Shape{368, 1056, 544, Add::kOther, Scaled::kNo},
           Shape{7, 5, 31, Add::kOther, Scaled::kLeft},
           Shape{64, 96, 128, Add::kNone, Scaled::kBoth},
       }) {
    cases.push_back({"linear_forward", "linear_forward bf16 to float" + shape_name(s),
                     [s] { return forward_instance<bf16, float>(s); }});
  }
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
