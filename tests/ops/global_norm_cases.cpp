#include "base/check.h"
#include "ops/global_norm.h"
#include "tests/ops/op_case.h"
#include "tests/ref/global_norm.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Setup {
  std::string name;
  std::vector<int64_t> sizes;
  float max_norm;
  std::vector<float> planted;  // overwrite the last tensor's last elements
};

OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  auto grads = std::make_shared<std::vector<View<const float, 1>>>();
  for (size_t i = 0; i < s.sizes.size(); ++i) {
    const View<float, 1> g = bench->in<float, 1>(strprintf("g%zu", i), {s.sizes[i]});
    if (i + 1 == s.sizes.size()) {
      std::copy(s.planted.begin(), s.planted.end(), g.data + g.size() - s.planted.size());
    }
    grads->push_back(g);
  }
  bench->commit();
  const GradientList list{grads->data(), {int64_t(grads->size())}};
  const GlobalNorm a{.norm = bench->out<float, 1>("norm", {1}),
                     .clip = bench->out<float, 1>("clip", {1}),
                     .non_finite = bench->out<int64_t, 1>("non_finite", {1}),
                     .partial = bench->tmp<double, 2>("partial", {global_norm_pieces(list), 2}),
                     .grads = list,
                     .max_norm = s.max_norm};
  const auto check = [a, grads](Report& report) {
    ref::GlobalNorm want;
    for (const auto& g : *grads) want.add(Workbench::doubles(g));
    const auto near = [&](const char* name, View<float, 1> got, double value) {
      if (std::isfinite(value)) {
        report.near(name, got, {value}, [&](int64_t) { return tol::rounding<float>(value); });
      } else {
        const bool same = std::isnan(value) ? std::isnan(got[0]) : double(got[0]) == value;
        report.below(std::string(name) + " is non-finite as expected", same ? 0 : 1, 0.5);
      }
    };
    near("norm", a.norm, want.norm());
    near("clip", a.clip, want.clip(a.max_norm));
    report.equal("non_finite", a.non_finite, {double(want.non_finite)});
  };
  const auto run = [a, grads, bench](Exec on) {
    auto located = *grads;
    for (auto& g : located) g = bench->located(g);
    GlobalNorm where = bench->located(a);
    where.grads.data = located.data();
    global_norm(on, where);
  };
  return {bench, run, check, global_norm_cost(a)};
}

}  // namespace

std::vector<OpCase> global_norm_cases() {
  std::vector<OpCase> cases;
  const std::vector<int64_t> hundred(100, 999), tiny(1100, 5);
  const std::vector<Setup> setups{{"one element", {1}, 0.0f, {}},
                                  {"nothing", {0}, 1.0f, {}},
                                  {"under the limit", {100}, 1000.0f, {}},
                                  {"clipped", {7, 16384, 16385, 1, 100001}, 1.0f, {}},
                                  {"not clipped by 0", {513, 0, 3}, 0.0f, {}},
                                  {"zeros", {3}, 1.0f, {0, 0, 0}},
                                  {"large values", {20}, 1.0f, {2e38f, -2e38f, 1e30f}},
                                  {"NaN", {20, 40000}, 1.0f, {NAN, 1, NAN}},
                                  {"infinite", {20, 40000}, 1.0f, {-INFINITY, INFINITY, 1}},
                                  {"many tensors", hundred, 1.0f, {}},
                                  {"1100 tensors", tiny, 1.0f, {NAN}},
                                  {"a model of 9.3 M", {9300000}, 1.0f, {}}};
  const Setup model{"a model of 32 M", {24000000, 8000000, 768, 1000001}, 1.0f, {}};
  cases.push_back(
      large("global_norm", "global_norm " + model.name, [model] { return instance(model); }));
  for (const Setup& s : setups) {
    cases.push_back({"global_norm", "global_norm " + s.name, [s] { return instance(s); }});
  }
  return cases;
}

}  // namespace assay
