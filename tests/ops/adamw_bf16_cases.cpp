#include <limits>

#include "ops/adamw_bf16.h"
#include "tests/ops/op_case.h"
#include "tests/ref/adamw.h"
#include "tests/ref/cast.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

enum class State { kFirst, kUnderWay };
enum class Squares { kNone, kAsked };

struct Setup {
  int64_t n;
  int64_t step;
  float lr, weight_decay;
  State state;
  float grad_scale;  // 1: none given
  Squares squares = Squares::kNone;
};

const RandomKey kKey{5, stream_id("w.state"), 9};

// The random bits of an element as ops/adamw_bf16.h defines them. which: 0 weight, 1 m, 2 v.
uint32_t draw_of(const RandomKey& key, int64_t element, int which) {
  const uint64_t block = kAdamWRounded * uint64_t(element / kAdamWDraw) + uint64_t(which);
  const uint32_t word = random_block(key, block)[size_t(element % kAdamWDraw / 2)];
  return element % 2 == 0 ? word & 0xFFFF : word >> 16;
}

// A value that stochastic rounding gives lies within one step of x; `error` is that of the
// arithmetic before it.
double one_step(double x, double error) {
  return ref::bf16_step(std::abs(x) + error) + error;
}

OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  const bool first = s.state == State::kFirst;
  const Fill moment = first ? Fill{Fill::kZero} : normal(0.1);
  AdamWBf16 a{.weight = bench->acc<bf16, 1>("weight", {s.n}),
              .m = bench->acc<bf16, 1>("m", {s.n}, moment),
              .v = bench->acc<bf16, 1>("v", {s.n}, moment),
              .grad = bench->in<float, 1>("grad", {s.n}),
              .lr = s.lr,
              .weight_decay = s.weight_decay,
              .step = s.step,
              .key = kKey};
  if (s.grad_scale != 1.0f) {
    a.grad_scale = bench->in<float, 1>("grad_scale", {1}, normal(0, s.grad_scale));
  }
  if (s.squares == Squares::kAsked) {
    a.squares = bench->out<double, 2>("squares", {adamw_pieces(s.n), 3});
  }
  for (int64_t i = 0; i < s.n; ++i) a.v[i] = bf16(std::abs(float(a.v[i])));
  bench->commit();

  const auto p0 = Workbench::doubles(a.weight), m0 = Workbench::doubles(a.m);
  const auto v0 = Workbench::doubles(a.v), grad = Workbench::doubles(a.grad);
  const auto check = [=](Report& report) {
    std::vector<double> p(p0.size()), m(p0.size()), v(p0.size());
    for (size_t i = 0; i < p.size(); ++i) {
      ref::AdamW x{p0[i], m0[i], v0[i]};
      x.step(grad[i] * double(s.grad_scale), a.lr, a.beta1, a.beta2, a.eps, a.weight_decay, a.step);
      p[i] = x.p;
      m[i] = x.m;
      v[i] = x.v;
    }
    // The arithmetic is AdamW's, so its tolerances are those of adamw_cases.cpp.
    report.near("m", a.m, m, [&](int64_t i) {
      const size_t j = size_t(i);
      return one_step(m[j], tol::sum(2, std::abs(m0[j]) + std::abs(grad[j])));
    });
    report.near("v", a.v, v,
                [&](int64_t i) { return one_step(v[size_t(i)], tol::sum(3, v[size_t(i)])); });
    const double correction = 1 - std::pow(a.beta1, double(s.step));
    report.near("weight", a.weight, p, [&](int64_t i) {
      const size_t j = size_t(i);
      const double reach = (std::abs(m0[j]) + std::abs(grad[j]) * s.grad_scale) / correction;
      const double root = std::sqrt(v[j] / (1 - std::pow(a.beta2, double(s.step)))) + a.eps;
      return one_step(p[j], tol::rounding<float>(p[j]) +
                                tol::elementary(1, a.lr * a.weight_decay * p0[j]) +
                                tol::elementary(4, a.lr * reach / root));
    });
    if (a.squares.empty()) return;
    std::vector<double> want(size_t(a.squares.size()), 0.0);
    for (size_t i = 0; i < grad.size(); ++i) {
      double* sums = want.data() + 3 * (int64_t(i) / kAdamWPiece);
      const double stored = double(float(a.weight[int64_t(i)]));
      sums[0] += grad[i] * grad[i];
      sums[1] += (p0[i] - p[i]) * (p0[i] - p[i]);
      sums[2] += stored * stored;
    }
    report.near("squares", a.squares, want,
                [&](int64_t i) { return tol::elementary(8, want[size_t(i)]); });
  };
  return {bench, [a, bench](Exec on) { adamw_bf16(on, bench->located(a)); }, check,
          adamw_bf16_cost(a)};
}

// Settings in which the arithmetic is exact, so that the results have the bits of their definition.
// kMoments: betas and learning rate 0, so m = g, v = g^2 and the weight keeps its bits. kWeight:
// gradient 0 and decay 1/64, so the weight becomes 63/64 of itself and the moments stay 0.
enum class Exact { kMoments, kWeight };

OpInstance exact_instance(Exact which, int64_t n, const RandomKey& key, int64_t first = 0) {
  auto bench = std::make_shared<Workbench>();
  const bool moments = which == Exact::kMoments;
  const AdamWBf16 a{
      .weight = bench->acc<bf16, 1>("weight", {n}),
      .m = bench->acc<bf16, 1>("m", {n}, Fill{Fill::kZero}),
      .v = bench->acc<bf16, 1>("v", {n}, Fill{Fill::kZero}),
      .grad = bench->in<float, 1>("grad", {n}, moments ? normal() : Fill{Fill::kZero}),
      .lr = moments ? 0.0f : 0.25f,
      .beta1 = moments ? 0.0f : 0.9f,
      .beta2 = moments ? 0.0f : 0.95f,
      .weight_decay = moments ? 0.0f : 0.0625f,
      .step = 1,
      .key = key,
      .first = first};
  const auto before = Workbench::doubles(a.weight);
  const auto check = [=](Report& report) {
    std::vector<double> p = before, m(before.size()), v(before.size());
    for (int64_t i = 0; i < n; ++i) {
      const size_t j = size_t(i);
      const float g = a.grad[i];
      m[j] = ref::bf16_stochastic(double(g), draw_of(key, first + i, 1));
      v[j] = ref::bf16_stochastic(double(g * g), draw_of(key, first + i, 2));
      if (!moments) p[j] = ref::bf16_stochastic(before[j] * 63 / 64, draw_of(key, first + i, 0));
    }
    report.equal("weight", a.weight, p);
    report.equal("m", a.m, m);
    report.equal("v", a.v, v);
  };
  return {bench, [a, bench](Exec on) { adamw_bf16(on, bench->located(a)); }, check, {}};
}

// Every weight is 1 and moves by lr = 2^-12 in the first step, a sixteenth of the distance to the
// bf16 below it. The mean over n weights moves by lr within 6 standard deviations, each at most
// half a step over sqrt(n). Rounding to nearest would move none.
OpInstance unbiased_instance() {
  const int64_t n = 1 << 20;
  auto bench = std::make_shared<Workbench>();
  const AdamWBf16 a{.weight = bench->acc<bf16, 1>("weight", {n}, normal(0, 1)),
                    .m = bench->acc<bf16, 1>("m", {n}, Fill{Fill::kZero}),
                    .v = bench->acc<bf16, 1>("v", {n}, Fill{Fill::kZero}),
                    .grad = bench->in<float, 1>("grad", {n}, normal(0, 0.3)),
                    .lr = 0x1p-12f,
                    .eps = 1e-20f,
                    .step = 1,
                    .key = kKey};
  const auto check = [=](Report& report) {
    const double g = double(a.grad[0]);
    const double want[] = {1 - 0x1p-12, 0.1 * g, 0.05 * g * g};
    const View<bf16, 1> got[] = {a.weight, a.m, a.v};
    const char* const names[] = {"mean of weight", "mean of m", "mean of v"};
    for (int k = 0; k < 3; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double(float(got[k][i])) - want[k];
      const double error = tol::elementary(4, want[k]);
      report.below(names[k], std::abs(sum / double(n)),
                   6 * ref::bf16_step(want[k]) / 2 / std::sqrt(double(n)) + error);
    }
  };
  return {bench, [a, bench](Exec on) { adamw_bf16(on, bench->located(a)); }, check, {}};
}

// A NaN or an infinity in the gradient is not rounded away.
OpInstance not_finite_instance() {
  const int64_t n = 24;
  auto bench = std::make_shared<Workbench>();
  const View<float, 1> grad = bench->in<float, 1>("grad", {n});
  grad[3] = std::numeric_limits<float>::quiet_NaN();
  grad[9] = std::numeric_limits<float>::infinity();
  bench->commit();
  const AdamWBf16 a{.weight = bench->acc<bf16, 1>("weight", {n}),
                    .m = bench->acc<bf16, 1>("m", {n}, Fill{Fill::kZero}),
                    .v = bench->acc<bf16, 1>("v", {n}, Fill{Fill::kZero}),
                    .grad = grad,
                    .lr = 1e-3f,
                    .step = 1,
                    .key = kKey};
  const auto check = [=](Report& report) {
    int wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool lost = i == 3 || i == 9;
      wrong += std::isfinite(float(a.weight[i])) == lost;
      wrong += std::isfinite(float(a.m[i])) == lost;
      wrong += std::isfinite(float(a.v[i])) == lost;
    }
    report.below("finite where it is not, or not where it is", wrong, 0.5);
  };
  return {bench, [a, bench](Exec on) { adamw_bf16(on, bench->located(a)); }, check, {}};
}

std::string case_name(const Setup& s) {
  return "adamw_bf16 n=" + std::to_string(s.n) + " step " + std::to_string(s.step) +
         (s.grad_scale != 1.0f ? " scaled" : "") + (s.squares == Squares::kAsked ? " squares" : "");
}

}  // namespace

std::vector<OpCase> adamw_bf16_cases() {
  const std::string op = "adamw_bf16";
  std::vector<OpCase> cases{{op, "adamw_bf16 is unbiased", unbiased_instance},
                            {op, "adamw_bf16 keeps what is not finite", not_finite_instance}};
  for (const Setup& s : {Setup{1, 1, 1e-3f, 0.1f, State::kFirst, 1.0f},
                         Setup{0, 1, 1e-3f, 0.1f, State::kFirst, 1.0f},
                         Setup{77, 1, 1e-3f, 0.0f, State::kFirst, 1.0f},
                         Setup{16389, 2, 3e-2f, 0.1f, State::kUnderWay, 0.03125f},
                         Setup{1000003, 1000, 1e-3f, 0.1f, State::kUnderWay, 0.5f},
                         Setup{33003, 3, 3e-2f, 0.1f, State::kUnderWay, 0.25f, Squares::kAsked},
                         Setup{5, 1, 1e-3f, 0.0f, State::kFirst, 1.0f, Squares::kAsked}}) {
    cases.push_back({op, case_name(s), [s] { return instance(s); }});
  }
  // The bits of the definition, under keys that differ in one field each.
  for (const RandomKey& key :
       {kKey, RandomKey{6, kKey.stream, kKey.step}, RandomKey{kKey.seed, 3, kKey.step},
        RandomKey{kKey.seed, kKey.stream, 10}}) {
    const std::string of = " key " + std::to_string(key.seed) + "/" +
                           std::to_string(key.stream % 1000) + "/" + std::to_string(key.step);
    cases.push_back({op, "adamw_bf16 exact moments" + of,
                     [key] { return exact_instance(Exact::kMoments, 20003, key); }});
    cases.push_back({op, "adamw_bf16 exact weight" + of,
                     [key] { return exact_instance(Exact::kWeight, 20003, key); }});
  }
  for (const int64_t first : {int64_t{8}, int64_t{3} * kAdamWPiece}) {
    const std::string of = " from element " + std::to_string(first);
    cases.push_back({op, "adamw_bf16 exact moments" + of,
                     [first] { return exact_instance(Exact::kMoments, 20003, kKey, first); }});
    cases.push_back({op, "adamw_bf16 exact weight" + of,
                     [first] { return exact_instance(Exact::kWeight, 20003, kKey, first); }});
  }
  for (const Squares squares : {Squares::kNone, Squares::kAsked}) {
    const Setup s{32000000, 1000, 1e-3f, 0.1f, State::kUnderWay, 0.5f, squares};
    cases.push_back(large(op, case_name(s), [s] { return instance(s); }));
  }
  return cases;
}

}  // namespace assay
