#include <cstring>

#include "ops/quantise/scale.h"
#include "ops/swiglu.h"
#include "ops/swiglu_codes.h"
#include "tests/ops/coded_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ref/swiglu.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Shape {
  int64_t rows, width;
  double bad = 0;  // if not 0, a non-finite value for one number
  std::string text() const {
    return " M=" + std::to_string(rows) + " F=" + std::to_string(width) +
           (bad == 0     ? ""
            : bad == bad ? " inf"
                         : " NaN");
  }
};

constexpr QuantFormat kPowers{.element = ElementFormat::kE4M3,
                              .scale = ScaleKind::k1x128,
                              .scale_rounding = ScaleRounding::kPowerOfTwo};

QuantisedCopy copy_of(Workbench& bench, const std::string& name, const QuantFormat& f,
                      int64_t lines, int64_t k, uint32_t site) {
  QuantisedCopy copy = copy_buffers(bench, name, f, lines, k, 0);
  copy.site = site;
  return copy;
}

// Buffers of the ops that an op is compared with, which it does not move itself.
void leave_out(Workbench& bench, const std::vector<QuantisedCopy>& copies,
               const View<uint32_t, 1>& mark) {
  for (const QuantisedCopy& copy : copies) {
    bench.must_move(copy.codes, 0);
    bench.must_move(copy.scales, 0);
  }
  bench.must_move(mark, 0);
}

View<const bf16, 2> gate_up_of(Workbench& bench, const Shape& s) {
  const auto gate_up = bench.in<bf16, 2>("gate_up", {s.rows, 2 * s.width}, normal(2.0));
  if (s.bad != 0) gate_up.at(s.rows - 1, 2 * s.width - 3) = bf16(float(s.bad));
  bench.commit();
  return gate_up;
}

template <typename T, int Rank>
void check_bytes(Report& report, const std::string& name, const View<T, Rank>& got,
                 const View<T, Rank>& want) {
  const bool same = got.size() == want.size() &&
                    (want.size() == 0 || std::memcmp(got.data, want.data, want.bytes()) == 0);
  report.below(name + " differ from quantise's", same ? 0 : 1, 0.5);
}
void check_same(Report& report, const std::string& name, const QuantisedCopy& got,
                const QuantisedCopy& want) {
  check_bytes(report, name + " codes", got.codes, want.codes);
  check_bytes(report, name + " scales", got.scales, want.scales);
}

// Compares the decoded values of some lines with the reference in double.
void check_values(Report& report, const std::string& name, const QuantFormat& f,
                  const QuantisedCopy& got, const std::vector<int64_t>& lines,
                  const std::vector<double>& want) {
  const int64_t k = got.codes.dim[1];
  std::vector<float> values;
  std::vector<double> most;
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t line = lines[i / size_t(k)], at = int64_t(i) % k;
    const float scale = got.scales[scale_index(f, got.codes.dim[0], k, line, at / 128)];
    values.push_back(e4m3::decode(got.codes.at(line, at)) * scale);
    if (at % 128 == 0) {
      double largest = 0;
      for (size_t j = i; j < i + 128; ++j) largest = std::max(largest, std::abs(want[j]));
      most.insert(most.end(), 128, largest);
    }
  }
  report.near(name, View<const float, 1>{values.data(), {int64_t(values.size())}}, want,
              [&](int64_t i) {
                const double x = want[size_t(i)];
                return tol::rounding<bf16>(x) + tol::elementary(12, most[size_t(i)]) +
                       tol::code_e4m3(x, most[size_t(i)]);
              });
}

OpInstance forward_instance(const QuantFormat& f, const Shape& s, CaseSize size) {
  auto bench = std::make_shared<Workbench>();
  const auto mark = [&](const char* name) {
    return bench->acc<uint32_t, 1>(name, {1}, {Fill::kZero});
  };
  const SwigluCodesForward a{.h = copy_of(*bench, "h", f, s.rows, s.width, 5),
                             .not_finite = mark("not finite"),
                             .gate_up = gate_up_of(*bench, s),
                             .format = f};
  const auto values = [=](Report& report) {
    if (s.bad != 0) return;
    const auto rows = sample(s.rows, 2.0 * double(s.width));
    check_values(report, "h", f, a.h, rows,
                 ref::Swiglu<double>{int64_t(rows.size()), s.width}.forward(
                     chosen_doubles(a.gate_up, rows)));
  };
  const Cost cost = swiglu_codes_forward_cost(a);
  if (size == CaseSize::kLarge) {
    return {bench, [a, bench](Exec on) { swiglu_codes_forward(on, bench->located(a)); }, values,
            cost};
  }
  const View<bf16, 2> h = bench->out<bf16, 2>("plain h", {s.rows, s.width});
  const Quantise<bf16> plain{.row = copy_of(*bench, "plain", f, s.rows, s.width, 5),
                             .not_finite = mark("plain not finite"),
                             .x = h,
                             .format = f};
  const auto run = [=](Exec on) {
    swiglu_codes_forward(on, bench->located(a));
    swiglu_forward<bf16>(on, bench->located(SwigluForward<bf16>{.h = h, .gate_up = a.gate_up}));
    quantise(on, bench->located(plain));
  };
  const auto check = [=](Report& report) {
    values(report);
    check_same(report, "h", a.h, plain.row);
    report.equal("mark", a.not_finite, {double(plain.not_finite[0])});
    report.below("no mark", s.bad != 0 && a.not_finite[0] == 0, 0.5);
  };
  leave_out(*bench, {plain.row}, plain.not_finite);
  bench->must_move(h, 0);
  const OpInstance::Alone alone{[=](Exec on) { swiglu_codes_forward(on, bench->located(a)); },
                                cost};
  return {bench, run, check, cost, {}, alone};
}

// Checks one column of h, of dgate and of dup, and the padding after them.
void check_column(Report& report, const SwigluCodesBackward& a, int64_t column) {
  const int64_t rows = a.dh.dim[0], width = a.dh.dim[1], padded = a.h_column.codes.dim[1];
  std::vector<double> gate_up, dh;
  for (int64_t r = 0; r < rows; ++r) {
    gate_up.push_back(float(a.gate_up.at(r, column)));
    gate_up.push_back(float(a.gate_up.at(r, width + column)));
    dh.push_back(float(a.dh.at(r, column)));
  }
  const ref::Swiglu<double> reference{rows, 1};
  std::vector<double> h = reference.forward(gate_up), dgate, dup;
  const std::vector<double> both = reference.backward(dh, gate_up);
  for (size_t i = 0; i < both.size(); i += 2) {
    dgate.push_back(both[i]);
    dup.push_back(both[i + 1]);
  }
  for (std::vector<double>* x : {&h, &dgate, &dup}) x->resize(size_t(padded), 0.0);
  const std::string at = " column " + std::to_string(column);
  check_values(report, "h" + at, a.format, a.h_column, {column}, h);
  check_values(report, "dgate" + at, a.format, a.column, {column}, dgate);
  check_values(report, "dup" + at, a.format, a.column, {width + column}, dup);
}

OpInstance backward_instance(const QuantFormat& f, const Shape& s, CaseSize size) {
  auto bench = std::make_shared<Workbench>();
  const int64_t padded = padded_length(f.scale, s.rows);
  const auto mark = [&](const char* name) {
    return bench->acc<uint32_t, 1>(name, {1}, {Fill::kZero});
  };
  const SwigluCodesBackward a{.row = copy_of(*bench, "row", f, s.rows, 2 * s.width, 7),
                              .column = copy_of(*bench, "column", f, 2 * s.width, padded, 6),
                              .h_column = copy_of(*bench, "h", f, s.width, padded, 5),
                              .not_finite = mark("not finite"),
                              .dh = bench->in<bf16, 2>("dh", {s.rows, s.width}),
                              .gate_up = gate_up_of(*bench, s),
                              .format = f};
  const auto values = [=](Report& report) {
    if (s.bad != 0) return;
    const auto rows = sample(s.rows, 2.0 * double(s.width));
    check_values(report, "dgate_up", f, a.row, rows,
                 ref::Swiglu<double>{int64_t(rows.size()), s.width}.backward(
                     chosen_doubles(a.dh, rows), chosen_doubles(a.gate_up, rows)));
    for (const int64_t column : {int64_t{0}, s.width / 2 + 1, s.width - 1}) {
      check_column(report, a, column);
    }
  };
  const Cost cost = swiglu_codes_backward_cost(a);
  if (size == CaseSize::kLarge) {
    return {bench, [a, bench](Exec on) { swiglu_codes_backward(on, bench->located(a)); }, values,
            cost};
  }
  const View<bf16, 2> h = bench->out<bf16, 2>("plain h", {s.rows, s.width});
  const View<bf16, 2> dgate_up = bench->out<bf16, 2>("plain dgate_up", {s.rows, 2 * s.width});
  const View<uint32_t, 1> marked = mark("plain not finite");
  const Quantise<bf16> gradient{
      .row = copy_of(*bench, "plain row", f, s.rows, 2 * s.width, 7),
      .column = copy_of(*bench, "plain column", f, 2 * s.width, padded, 6),
      .not_finite = marked,
      .x = dgate_up,
      .format = f};
  const Quantise<bf16> input{.column = copy_of(*bench, "plain h column", f, s.width, padded, 5),
                             .not_finite = marked,
                             .x = h,
                             .format = f};
  const auto run = [=](Exec on) {
    swiglu_codes_backward(on, bench->located(a));
    swiglu_forward<bf16>(on, bench->located(SwigluForward<bf16>{.h = h, .gate_up = a.gate_up}));
    swiglu_backward<bf16>(on, bench->located(SwigluBackward<bf16>{
                                  .dgate_up = dgate_up, .dh = a.dh, .gate_up = a.gate_up}));
    quantise(on, bench->located(gradient));
    quantise(on, bench->located(input));
  };
  const auto check = [=](Report& report) {
    values(report);
    check_same(report, "row", a.row, gradient.row);
    check_same(report, "column", a.column, gradient.column);
    check_same(report, "h", a.h_column, input.column);
    report.equal("mark", a.not_finite, {double(marked[0])});
    report.below("no mark", s.bad != 0 && a.not_finite[0] == 0, 0.5);
  };
  leave_out(*bench, {gradient.row, gradient.column, input.column}, marked);
  bench->must_move(h, 0);
  bench->must_move(dgate_up, 0);
  const OpInstance::Alone alone{[=](Exec on) { swiglu_codes_backward(on, bench->located(a)); },
                                cost};
  return {bench, run, check, cost, {}, alone};
}

// Native products of fp8_block, which read these codes, are for 9.0 alone.
constexpr int kCapability = 90;

void add_cases(std::vector<OpCase>& cases, const char* name, const QuantFormat& f, const Shape& s,
               CaseSize size = CaseSize::kUsual) {
  const std::string text = std::string(" ") + name + s.text();
  cases.push_back({"swiglu_codes_forward", "swiglu_codes_forward" + text,
                   [=] { return forward_instance(f, s, size); }, OpBody::kGpu, size, kCapability,
                   kCapability});
  cases.push_back({"swiglu_codes_backward", "swiglu_codes_backward" + text,
                   [=] { return backward_instance(f, s, size); }, OpBody::kGpu, size, kCapability,
                   kCapability});
}

}  // namespace

std::vector<OpCase> swiglu_codes_cases() {
  constexpr QuantFormat plain{ElementFormat::kE4M3, ScaleKind::k1x128};
  std::vector<OpCase> cases;
  for (const Shape& s :
       {Shape{0, 128}, Shape{1, 128}, Shape{128, 128}, Shape{131, 384}, Shape{300, 256}}) {
    add_cases(cases, "1x128", kLine, s);
  }
  add_cases(cases, "plain", plain, {70, 256});
  add_cases(cases, "powers of two", kPowers, {70, 128});
  for (const double bad : {double(INFINITY), double(NAN)}) {
    add_cases(cases, "1x128", kLine, {140, 256, bad});
  }
  add_cases(cases, "1x128", kLine, {65536, 3072}, CaseSize::kLarge);
  return cases;
}

}  // namespace assay
