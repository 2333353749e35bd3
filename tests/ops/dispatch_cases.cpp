#include "ops/dispatch.h"
#include "tests/ops/op_case.h"
#include "tests/ops/routing.h"
#include "tests/ref/dispatch.h"

namespace assay {

namespace {

struct Shape {
  int64_t tokens, experts, k;
  Load load;
};

OpInstance instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const View<int32_t, 2> expert = bench->in<int32_t, 2>("expert", {s.tokens, s.k});
  const Dispatch a{
      .offsets = bench->out<int32_t, 1>("offsets", {s.experts + 1}),
      .token = bench->out<int32_t, 1>("token", {s.tokens * s.k}),
      .slot = bench->out<int32_t, 2>("slot", {s.tokens, s.k}),
      .partial = bench->tmp<int32_t, 2>("partial", {dispatch_pieces(s.tokens), s.experts}),
      .expert = expert};
  const auto chosen = choose_experts(s.tokens, s.experts, s.k, s.load);
  std::copy(chosen.begin(), chosen.end(), expert.data);
  bench->commit();
  const auto check = [a, s, chosen](Report& report) {
    const ref::Dispatch want(chosen, s.experts, s.k);
    const auto doubles = [](const std::vector<int64_t>& v) {
      return std::vector<double>(v.begin(), v.end());
    };
    report.equal("offsets", a.offsets, doubles(want.offsets));
    report.equal("token", a.token, doubles(want.token));
    report.equal("slot", a.slot, doubles(want.slot));
  };
  return {bench, [a, bench](Exec on) { dispatch(on, bench->located(a)); }, check, dispatch_cost(a)};
}

}  // namespace

std::vector<OpCase> dispatch_cases() {
  std::vector<OpCase> cases;
  const auto name_of = [](const Shape& s) {
    return "dispatch N=" + std::to_string(s.tokens) + " E=" + std::to_string(s.experts) +
           " K=" + std::to_string(s.k) + " " + load_name(s.load);
  };
  for (const Shape& s : {Shape{1, 1, 1, Load::kRandom}, Shape{1, 4, 4, Load::kRandom},
                         Shape{67, 5, 1, Load::kOneHot}, Shape{257, 9, 2, Load::kOddsOnly},
                         Shape{513, 4, 2, Load::kOneHot}, Shape{65, 64, 16, Load::kRandom},
                         Shape{300, 4096, 7, Load::kOneHot}, Shape{2048, 64, 6, Load::kRandom},
                         Shape{8705, 5, 2, Load::kRandom}, Shape{2048, 4, 2, Load::kRandom},
                         Shape{2048, 256, 7, Load::kRandom}, Shape{2048, 4096, 7, Load::kRandom}}) {
    cases.push_back({"dispatch", name_of(s), [s] { return instance(s); }});
  }
  for (const Shape& s : {Shape{65536, 64, 6, Load::kRandom}, Shape{65536, 256, 7, Load::kRandom},
                         Shape{65536, 4096, 7, Load::kRandom}}) {
    cases.push_back(large("dispatch", name_of(s), [s] { return instance(s); }));
  }
  return cases;
}

}  // namespace assay
