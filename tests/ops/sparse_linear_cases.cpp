#include "ops/sparse_linear.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ops/routed_shape.h"
#include "tests/ref/dispatch.h"
#include "tests/ref/linear.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

using Shape = RoutedShape;
using Add = RoutedShape::Add;

// Fills the routing as ops/dispatch.h computes it.
template <typename T>
void fill_routing(Workbench& bench, const Shape& s, SparseLinearBackward<T>& a) {
  const auto chosen = choose_experts(s.tokens, s.experts, s.k, s.load);
  const ref::Dispatch order(chosen, s.experts, s.k);
  const auto expert = bench.in<int32_t, 2>("expert", {s.tokens, s.k});
  const auto offsets = bench.in<int32_t, 1>("offsets", {s.experts + 1});
  const auto token = bench.in<int32_t, 1>("token", {s.tokens * s.k});
  std::copy(chosen.begin(), chosen.end(), expert.data);
  std::copy(order.offsets.begin(), order.offsets.end(), offsets.data);
  std::copy(order.token.begin(), order.token.end(), token.data);
  bench.commit();
  a.expert = expert;
  a.offsets = offsets;
  a.token = token;
}

// Compares with the dense products of a matrix with zeros outside the chosen columns, all of it or
// a sample of the tokens and of the experts.
template <typename T>
OpInstance instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const bool self = s.add == Add::kSelf;
  SparseLinearBackward<T> a{
      .dx = self ? bench->acc<T, 2>("dx", {s.tokens, s.width})
                 : bench->out<T, 2>("dx", {s.tokens, s.width}),
      .dweight = bench->acc<float, 2>("dweight", {s.experts, s.width}),
      .dz = bench->in<float, 2>("dz", {s.tokens, s.k}),
      .expert = {},
      .offsets = {},
      .token = {},
      .x = bench->in<T, 2>("x", {s.tokens, s.width}),
      .weight = bench->in<T, 2>("weight", {s.experts, s.width}),
  };
  fill_routing(*bench, s, a);
  const double chosen = double(std::min(s.tokens * s.k, s.experts) * s.width);
  bench->must_move(a.weight, chosen * sizeof(T));
  bench->must_move(a.dweight, 2 * chosen * sizeof(float));
  if (self) a.add = a.dx;
  if (s.add == Add::kOther) a.add = bench->in<T, 2>("add", {s.tokens, s.width});
  const auto tokens = sample(s.tokens, double(s.experts * s.width));
  const auto outs = sample(s.experts, double(s.tokens * s.width));
  const auto dweight0 = chosen_doubles(a.dweight, outs);
  const auto add = s.add == Add::kNone ? std::vector<double>(tokens.size() * size_t(s.width), 0.0)
                                       : chosen_doubles(a.add, tokens);

  const auto check = [=](Report& report) {
    const auto dz = [&](int64_t t, int64_t e) {
      for (int64_t i = 0; i < s.k; ++i) {
        if (a.expert.at(t, i) == e) return double(float(T(a.dz.at(t, i))));
      }
      return 0.0;
    };
    std::vector<double> of_tokens, of_experts;  // (tokens, E), (N, outs)
    for (const int64_t t : tokens) {
      for (int64_t e = 0; e < s.experts; ++e) of_tokens.push_back(dz(t, e));
    }
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (const int64_t e : outs) of_experts.push_back(dz(t, e));
    }

    const ref::Linear<double> rows{int64_t(tokens.size()), s.experts, s.width};
    const auto weight = Workbench::doubles(a.weight);
    const auto dx = added(rows.dgrad(of_tokens, weight), add);
    const auto dx_size = added(rows.dgrad(absolute(of_tokens), absolute(weight)), absolute(add));
    auto dx_got = chosen_rows(a.dx.data, s.width, tokens);
    report.near("dx", dx_got.view(), dx, [&](int64_t i) {
      return tol::rounding<T>(dx[size_t(i)]) + tol::sum(double(s.k + 1), dx_size[size_t(i)]);
    });

    const ref::Linear<double> columns{s.tokens, int64_t(outs.size()), s.width};
    const auto x = Workbench::doubles(a.x);
    const auto dw = added(columns.wgrad(of_experts, x), dweight0);
    const auto dw_size =
        added(columns.wgrad(absolute(of_experts), absolute(x)), absolute(dweight0));
    auto dw_got = chosen_rows(a.dweight.data, s.width, outs);
    report.near("dweight", dw_got.view(), dw, [&](int64_t i) {
      const int64_t e = outs[size_t(i / s.width)], load = a.offsets[e + 1] - a.offsets[e];
      return tol::sum(double(load + 1), dw_size[size_t(i)]);
    });
  };
  const auto run = [a, bench](Exec on) { sparse_linear_backward<T>(on, bench->located(a)); };
  return {bench, run, check, sparse_linear_backward_cost(a)};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{1, 1, 1, 1, Load::kRandom, Add::kNone},
                         Shape{1, 16, 8, 3, Load::kRandom, Add::kOther},
                         Shape{67, 33, 20, 3, Load::kOddsOnly, Add::kSelf},
                         Shape{67, 300, 20, 3, Load::kRandom, Add::kOther},
                         Shape{65, 64, 40, 7, Load::kOneHot, Add::kSelf},
                         Shape{603, 20, 5, 2, Load::kOneHot, Add::kNone},
                         Shape{97, 64, 4096, 7, Load::kRandom, Add::kSelf},
                         Shape{513, 64, 4096, 7, Load::kRandom, Add::kNone}}) {
    cases.push_back({"sparse_linear",
                     std::string("sparse_linear_backward ") + dtype_name<T>() + shape_name(s),
                     [s] { return instance<T>(s); }});
  }
}

}  // namespace

std::vector<OpCase> sparse_linear_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  // 16,384 tokens of a model with 4096 experts, balanced and collapsed.
  for (const Load load : {Load::kRandom, Load::kOneHot}) {
    const Shape s{16384, 768, 4096, 8, load, Add::kSelf};
    cases.push_back(large("sparse_linear", "sparse_linear_backward bf16" + shape_name(s),
                          [s] { return instance<bf16>(s); }));
  }
  return cases;
}

}  // namespace assay
