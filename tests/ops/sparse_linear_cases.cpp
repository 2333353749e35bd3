#include "ops/sparse_linear.h"
#include "tests/ops/op_case.h"
#include "tests/ops/routing.h"
#include "tests/ref/dispatch.h"
#include "tests/ref/linear.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

enum class Add { kNone, kOther, kSelf };

struct Shape {
  int64_t tokens, width, experts, k;
  Load load;
  Add add;
};

std::string shape_name(const Shape& s) {
  return " N=" + std::to_string(s.tokens) + " C=" + std::to_string(s.width) +
         " E=" + std::to_string(s.experts) + " K=" + std::to_string(s.k) + " " + load_name(s.load) +
         (s.add == Add::kNone    ? ""
          : s.add == Add::kOther ? " add"
                                 : " add-self");
}

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

std::vector<double> absolute(std::vector<double> v) {
  for (double& x : v) x = std::abs(x);
  return v;
}

// Compares with the dense products of a matrix with zeros outside the chosen columns.
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
  if (self) a.add = a.dx;
  if (s.add == Add::kOther) a.add = bench->in<T, 2>("add", {s.tokens, s.width});
  const auto dweight0 = Workbench::doubles(a.dweight);
  const auto add = Workbench::doubles(a.add);

  const auto check = [=](Report& report) {
    std::vector<double> dz(size_t(s.tokens * s.experts), 0.0);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t i = 0; i < s.k; ++i) {
        dz[size_t(t * s.experts + a.expert.at(t, i))] = double(float(T(a.dz.at(t, i))));
      }
    }
    const ref::Linear<double> linear{s.tokens, s.experts, s.width};
    const auto weight = Workbench::doubles(a.weight), x = Workbench::doubles(a.x);
    auto dx = linear.dgrad(dz, weight);
    auto dx_size = linear.dgrad(absolute(dz), absolute(weight));
    for (size_t i = 0; i < add.size(); ++i) {
      dx[i] += add[i];
      dx_size[i] += std::abs(add[i]);
    }
    auto dw = linear.wgrad(dz, x);
    auto dw_size = linear.wgrad(absolute(dz), absolute(x));
    for (size_t i = 0; i < dw.size(); ++i) {
      dw[i] += dweight0[i];
      dw_size[i] += std::abs(dweight0[i]);
    }
    report.near("dx", a.dx, dx, [&](int64_t i) {
      return tol::rounding<T>(dx[size_t(i)]) + tol::sum(double(s.k + 1), dx_size[size_t(i)]);
    });
    report.near("dweight", a.dweight, dw, [&](int64_t i) {
      const int64_t e = i / s.width, load = a.offsets[e + 1] - a.offsets[e];
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
                         Shape{97, 64, 4096, 7, Load::kRandom, Add::kSelf},
                         Shape{513, 64, 4096, 7, Load::kRandom, Add::kNone}}) {
    cases.push_back({"sparse_linear",
                     std::string("sparse_linear_backward ") + dtype_name<T>() + shape_name(s),
                     [s] { return instance<T>(s); }, OpBody::kCpu});
  }
}

}  // namespace

std::vector<OpCase> sparse_linear_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  return cases;
}

}  // namespace assay
