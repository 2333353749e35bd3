#include "ops/combine.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ops/routed_shape.h"
#include "tests/ref/combine.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/dispatch.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

using Shape = RoutedShape;
using Add = RoutedShape::Add;

ref::Combine<double> reference(const Shape& s) {
  const ref::Dispatch order(choose_experts(s.tokens, s.experts, s.k, s.load), s.experts, s.k);
  return {s.tokens, s.width, s.k, order.slot};
}

View<const int32_t, 2> slots(Workbench& bench, const Shape& s) {
  const View<int32_t, 2> slot = bench.in<int32_t, 2>("slot", {s.tokens, s.k});
  const auto order = reference(s).slot;
  std::copy(order.begin(), order.end(), slot.data);
  bench.commit();
  return slot;
}

// The checked tokens as a separate problem: row i of its assignments is row slots[i] of the whole.
struct Looked {
  std::vector<int64_t> tokens, slots;
  ref::Combine<double> combine;
};
Looked looked_at(const Shape& s) {
  const ref::Combine<double> whole = reference(s);
  Looked looked{.tokens = wide_sample(s.tokens, double(s.k * s.width)), .slots = {}, .combine = {}};
  std::vector<int64_t> own;
  for (const int64_t t : looked.tokens) {
    for (int64_t i = 0; i < s.k; ++i) {
      own.push_back(int64_t(own.size()));
      looked.slots.push_back(whole.slot[size_t(t * s.k + i)]);
    }
  }
  looked.combine = {int64_t(looked.tokens.size()), s.width, s.k, own};
  return looked;
}

// y (or dx), and the matrix that is added to it.
template <typename T>
std::pair<View<T, 2>, View<const T, 2>> sum_buffers(Workbench& bench, const Shape& s) {
  if (s.add == Add::kSelf) {
    const View<T, 2> y = bench.acc<T, 2>("y", {s.tokens, s.width});
    return {y, y};
  }
  const View<T, 2> y = bench.out<T, 2>("y", {s.tokens, s.width});
  if (s.add == Add::kNone) return {y, {}};
  return {y, bench.in<T, 2>("add", {s.tokens, s.width})};
}

// Checks y against the sum of the rows weighted with these gates and of what is added, for the
// checked tokens.
template <typename T>
std::function<void(Report&)> check_sum(const Shape& s, View<T, 2> y, View<const T, 2> rows,
                                       const std::vector<double>& gate, View<const T, 2> add,
                                       View<const T, 2> resid = {}) {
  const Looked looked = looked_at(s);
  const auto terms = chosen_doubles(rows, looked.slots);
  std::vector<double> start(looked.tokens.size() * size_t(s.width), 0.0), start_size = start;
  for (const View<const T, 2>& more : {add, resid}) {
    if (more.empty()) continue;
    const auto values = chosen_doubles(more, looked.tokens);
    start = added(start, values);
    start_size = added(start_size, absolute(values));
  }
  return [=](Report& report) {
    const auto want = looked.combine.forward(terms, gate, start);
    const auto size = looked.combine.forward(absolute(terms), absolute(gate), start_size);
    auto got = chosen_rows(y.data, s.width, looked.tokens);
    report.near("y", got.view(), want, [&](int64_t i) {
      return tol::rounding<T>(want[size_t(i)]) + tol::sum(double(s.k) + 2, size[size_t(i)]);
    });
  };
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto [y, add] = sum_buffers<T>(*bench, s);
  CombineForward<T> a{.y = y,
                      .expert_out = bench->in<T, 2>("expert_out", {s.tokens * s.k, s.width}),
                      .slot = slots(*bench, s),
                      .gate = bench->in<float, 2>("gate", {s.tokens, s.k}),
                      .add = add};
  if (s.tokens % 2 == 1) a.resid = bench->in<T, 2>("resid", {s.tokens, s.width});
  const auto check = check_sum<T>(s, a.y, a.expert_out, chosen_doubles(a.gate, looked_at(s).tokens),
                                  a.add, a.resid);
  return {bench, [a, bench](Exec on) { combine_forward<T>(on, bench->located(a)); }, check,
          combine_forward_cost(a)};
}

template <typename T>
OpInstance reduce_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto [dx, add] = sum_buffers<T>(*bench, s);
  const ReduceByToken<T> a{.dx = dx,
                           .dexpert_in = bench->in<T, 2>("dexpert_in", {s.tokens * s.k, s.width}),
                           .slot = slots(*bench, s),
                           .add = add};
  const std::vector<double> ones(looked_at(s).slots.size(), 1.0);
  const auto check = check_sum<T>(s, a.dx, a.dexpert_in, ones, a.add);
  return {bench, [a, bench](Exec on) { reduce_by_token<T>(on, bench->located(a)); }, check,
          reduce_by_token_cost(a)};
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  CombineBackward<T> a{.dexpert_out = bench->out<T, 2>("dexpert_out", {s.tokens * s.k, s.width}),
                       .dgate = bench->out<float, 2>("dgate", {s.tokens, s.k}),
                       .dy = bench->in<T, 2>("dy", {s.tokens, s.width}),
                       .expert_out = bench->in<T, 2>("expert_out", {s.tokens * s.k, s.width}),
                       .slot = slots(*bench, s),
                       .gate = bench->in<float, 2>("gate", {s.tokens, s.k})};
  if (s.tokens % 2 == 1) a.amax = amax_word(*bench);
  const auto check = [a, s](Report& report) {
    check_amax(report, a.amax, a.dexpert_out);
    const Looked looked = looked_at(s);
    const auto out = chosen_doubles(a.expert_out, looked.slots);
    const auto gate = chosen_doubles(a.gate, looked.tokens);
    const auto dy = chosen_doubles(a.dy, looked.tokens);
    std::vector<double> dout, dgate, unused, size;
    looked.combine.backward(out, gate, dy, dout, dgate);
    looked.combine.backward(absolute(out), gate, absolute(dy), unused, size);
    auto got = chosen_rows(a.dexpert_out.data, s.width, looked.slots);
    auto got_dgate = chosen_rows(a.dgate.data, s.k, looked.tokens);
    report.near("dexpert_out", got.view(), dout, [&](int64_t i) {
      return tol::rounding<T>(dout[size_t(i)]) + tol::elementary(1, dout[size_t(i)]);
    });
    report.near("dgate", got_dgate.view(), dgate,
                [&](int64_t i) { return tol::sum(double(s.width), size[size_t(i)]); });
  };
  return {bench, [a, bench](Exec on) { combine_backward<T>(on, bench->located(a)); }, check,
          combine_backward_cost(a)};
}

// dGate = <dy, expert output> by finite differences of the op itself: L = sum dy y is linear in a
// gate, so a step of any size gives the slope except for the rounding of y.
OpInstance finite_difference_instance() {
  const Shape s{5, 24, 4, 2, Load::kRandom, Add::kNone};
  auto bench = std::make_shared<Workbench>();
  const View<float, 2> y = bench->tmp<float, 2>("y", {s.tokens, s.width});
  const View<float, 2> gate = bench->in<float, 2>("gate", {s.tokens, s.k});
  const CombineBackward<float> a{
      .dexpert_out = bench->out<float, 2>("dexpert_out", {s.tokens * s.k, s.width}),
      .dgate = bench->out<float, 2>("dgate", {s.tokens, s.k}),
      .dy = bench->in<float, 2>("dy", {s.tokens, s.width}),
      .expert_out = bench->in<float, 2>("expert_out", {s.tokens * s.k, s.width}),
      .slot = slots(*bench, s),
      .gate = gate};
  const auto check = [=](Report& report) {
    const auto loss = [&] {
      combine_forward<float>({},
                             {.y = y, .expert_out = a.expert_out, .slot = a.slot, .gate = gate});
      double sum = 0;
      for (int64_t i = 0; i < y.size(); ++i) sum += double(y[i]) * double(a.dy[i]);
      return sum;
    };
    std::vector<double> slope(size_t(gate.size())), size(slope.size());
    for (int64_t i = 0; i < gate.size(); ++i) {
      const float kept = gate[i];
      gate[i] = kept + 1;
      const double above = loss();
      gate[i] = kept - 1;
      slope[size_t(i)] = (above - loss()) / 2;
      gate[i] = kept;
      for (int64_t c = 0; c < s.width; ++c) size[size_t(i)] += 4 * std::abs(a.dy.at(i / s.k, c));
    }
    report.near("dgate by finite differences", a.dgate, slope,
                [&](int64_t i) { return tol::sum(double(s.width), size[size_t(i)]); });
  };
  return {
      bench, [a, bench](Exec on) { combine_backward<float>(on, bench->located(a)); }, check, {}};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const Shape s{4, 3, 5, 2, Load::kRandom, Add::kOther};
  const auto out = Workbench::doubles(bench->in<float, 2>("out", {s.tokens * s.k, s.width}));
  const auto gate = Workbench::doubles(bench->in<float, 2>("gate", {s.tokens, s.k}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {s.tokens, s.width}));
  const auto check = [=](Report& report) {
    std::vector<double> dout, dgate;
    const auto real = reference(s);
    real.backward(out, gate, dy, dout, dgate);
    const ref::Combine<ref::Complex> combine{s.tokens, s.width, s.k, real.slot};
    const auto loss = [&](const ref::ComplexVector& o, const ref::ComplexVector& g) {
      const auto y = combine.forward(o, g, {});
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const ref::ComplexVector oc(out.begin(), out.end()), gc(gate.begin(), gate.end());
    report.below("dexpert_out by complex step",
                 ref::complex_step_error([&](const auto& z) { return loss(z, gc); }, out, dout),
                 1e-13);
    report.below("dgate by complex step",
                 ref::complex_step_error([&](const auto& z) { return loss(oc, z); }, gate, dgate),
                 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{1, 1, 1, 1, Load::kRandom, Add::kNone},
                         Shape{3, 65, 4, 4, Load::kRandom, Add::kOther},
                         Shape{67, 300, 9, 2, Load::kOddsOnly, Add::kSelf},
                         Shape{129, 64, 5, 1, Load::kOneHot, Add::kNone},
                         Shape{33, 40, 20, 16, Load::kRandom, Add::kOther},
                         Shape{2048, 256, 4, 2, Load::kRandom, Add::kOther},
                         Shape{512, 768, 64, 7, Load::kRandom, Add::kSelf}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back(
        {"combine_forward", "combine_forward" + suffix, [s] { return forward_instance<T>(s); }});
    cases.push_back(
        {"combine_backward", "combine_backward" + suffix, [s] { return backward_instance<T>(s); }});
    cases.push_back({"combine_reduce_by_token", "reduce_by_token" + suffix,
                     [s] { return reduce_instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  const Shape s{16384, 768, 64, 6, Load::kRandom, Add::kOther};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(large("combine_forward", "combine_forward" + suffix,
                        [s] { return forward_instance<bf16>(s); }));
  cases.push_back(large("combine_backward", "combine_backward" + suffix,
                        [s] { return backward_instance<bf16>(s); }));
  cases.push_back(large("combine_reduce_by_token", "reduce_by_token" + suffix,
                        [s] { return reduce_instance<bf16>(s); }));
}

}  // namespace

std::vector<OpCase> combine_cases() {
  std::vector<OpCase> cases{
      {"combine_reference", "combine_reference complex step", reference_instance},
      {"combine_backward", "combine_backward finite differences", finite_difference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
