#include "ops/newton_schulz.h"
#include "tests/ops/op_case.h"
#include "tests/ref/cast.h"
#include "tests/ref/newton_schulz.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Setup {
  int64_t n, rows, cols, steps;
  double std = 1.0;  // 0: all elements are 0
};

OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  const int64_t m = std::min(s.rows, s.cols), size = s.rows * s.cols;
  const bool tall = s.rows > s.cols;
  const Fill fill = s.std == 0 ? Fill{Fill::kZero} : normal(s.std);
  const NewtonSchulz a{
      .x = bench->acc<bf16, 3>("x", {s.n, s.rows, s.cols}, fill),
      .product = bench->tmp<bf16, 3>("product", {s.n, s.rows, s.cols}),
      .gram = bench->tmp<bf16, 3>("gram", {s.n, m, m}),
      .square = bench->tmp<bf16, 3>("square", {s.n, m, m}),
      .gram_sums = bench->tmp<float, 3>("gram_sums", {tall ? s.n : 0, m, m}),
      .partial = bench->tmp<double, 2>("partial", {s.n, newton_schulz_pieces(size)}),
      .offsets = bench->tmp<int32_t, 2>("offsets", {2, s.n + 1}),
      .packed_x =
          bench->tmp<std::byte, 1>("packed_x", {newton_schulz_packed_x(s.n, s.rows, s.cols)}),
      .packed_gram =
          bench->tmp<std::byte, 1>("packed_gram", {newton_schulz_packed_gram(s.n, s.rows, s.cols)}),
      .steps = s.steps};
  const auto before = Workbench::doubles(a.x);
  const auto check = [=](Report& report) {
    std::vector<double> want;
    double away = 0;
    for (int64_t e = 0; e < std::min<int64_t>(s.n, 4); ++e) {  // the first four of a large stack
      const auto first = before.begin() + e * size;
      const auto reference = [&](auto round) {
        return ref::newton_schulz({first, first + size}, s.rows, s.cols, s.steps, round);
      };
      const ref::Matrix x = reference(ref::bf16_nearest_even);
      const ref::Matrix exact = reference([](double value) { return value; });
      want.insert(want.end(), x.begin(), x.end());
      for (size_t i = 0; i < x.size(); ++i) away += (x[i] - exact[i]) * (x[i] - exact[i]);
    }
    // By the norm: the iteration lifts roundings with the small singular values.
    double off = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = double(float(a.x[int64_t(i)])) - want[i];
      off += error * error;
    }
    report.below("distance", std::sqrt(off), tol::rounded_twice(std::sqrt(away)));
  };
  const auto workspace = [s](Backend backend) {
    return newton_schulz_workspace_bytes(backend, s.n, s.rows, s.cols);
  };
  return {bench, [a, bench](Exec on) { newton_schulz(on, bench->located(a)); }, check,
          newton_schulz_cost(a), workspace};
}

std::string case_name(const Setup& s) {
  return "newton_schulz bf16 " + std::to_string(s.n) + " x " + std::to_string(s.rows) + " x " +
         std::to_string(s.cols) + " steps " + std::to_string(s.steps) +
         (s.std == 0 ? " of zeros" : "");
}

}  // namespace

std::vector<OpCase> newton_schulz_cases() {
  std::vector<OpCase> cases;
  for (const Setup& s :
       {Setup{1, 1, 1, 5}, Setup{3, 1, 7, 5}, Setup{2, 7, 1, 5}, Setup{1, 64, 64, 5},
        Setup{3, 24, 40, 5, 1e-3}, Setup{3, 40, 24, 5, 1e3}, Setup{2, 33, 70, 1},
        Setup{2, 70, 33, 1}, Setup{1, 96, 200, 5}, Setup{1, 200, 96, 5}, Setup{4, 64, 128, 2},
        Setup{4, 128, 64, 2}, Setup{2, 16, 24, 5, 0}}) {
    cases.push_back({"newton_schulz", case_name(s), [s] { return instance(s); }});
  }
  for (const Setup& s : {Setup{1, 768, 768, 5}, Setup{2, 2048, 768, 5}, Setup{64, 256, 768, 5}}) {
    cases.push_back(large("newton_schulz", case_name(s), [s] { return instance(s); }));
  }
  return cases;
}

}  // namespace assay
