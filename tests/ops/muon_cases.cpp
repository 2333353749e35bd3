#include "ops/muon.h"
#include "tests/ops/op_case.h"
#include "tests/ref/muon.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Momentum {
  int64_t n;
  float mu, grad_scale;  // 1: none given
  MuonLook look;
};

OpInstance momentum_instance(const Momentum& s) {
  auto bench = std::make_shared<Workbench>();
  MuonMomentum a{.u = bench->out<bf16, 1>("u", {s.n}),
                 .momentum = bench->acc<float, 1>("momentum", {s.n}),
                 .grad = bench->in<float, 1>("grad", {s.n}),
                 .mu = s.mu,
                 .look = s.look};
  if (s.grad_scale != 1.0f) {
    a.grad_scale = bench->in<float, 1>("grad_scale", {1}, normal(0, s.grad_scale));
  }
  const auto before = Workbench::doubles(a.momentum), grad = Workbench::doubles(a.grad);
  const auto check = [=](Report& report) {
    std::vector<double> u(before.size()), b(before.size());
    for (size_t i = 0; i < u.size(); ++i) {
      ref::Muon x{before[i], grad[i] * double(s.grad_scale)};
      u[i] = x.momentum(s.mu, s.look == MuonLook::kNesterov);
      b[i] = x.b;
    }
    const auto error = [&](int64_t i) {
      return tol::sum(3, std::abs(before[size_t(i)]) + std::abs(grad[size_t(i)]));
    };
    report.near("momentum", a.momentum, b, error);
    report.near("u", a.u, u,
                [&](int64_t i) { return tol::rounding<bf16>(u[size_t(i)]) + error(i); });
  };
  return {bench, [a, bench](Exec on) { muon_momentum(on, bench->located(a)); }, check,
          muon_momentum_cost(a)};
}

enum class Squares { kNone, kAsked };
enum class Copy { kNone, kAsked };

struct Update {
  int64_t n;
  float decay, rate;
  Squares squares;
  Copy copy;
};

template <typename T>
OpInstance update_instance(const Update& s) {
  auto bench = std::make_shared<Workbench>();
  MuonUpdate<T> a{.master = bench->acc<float, 1>("master", {s.n}),
                  .o = bench->in<bf16, 1>("o", {s.n}),
                  .grad = bench->in<float, 1>("grad", {s.n}),
                  .decay = s.decay,
                  .rate = s.rate};
  if (s.copy == Copy::kAsked) a.weight = bench->out<T, 1>("weight", {s.n});
  if (s.squares == Squares::kAsked) {
    a.squares = bench->out<double, 2>("squares", {adamw_pieces(s.n), 3});
  } else {
    bench->must_move(a.grad, 0);
  }
  const auto p0 = Workbench::doubles(a.master), o = Workbench::doubles(a.o);
  const auto grad = Workbench::doubles(a.grad);
  const auto check = [=](Report& report) {
    std::vector<double> p(p0.size()), squares(size_t(a.squares.size()), 0.0);
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = p0[i] * (1 - double(s.decay)) - double(s.rate) * o[i];
      if (squares.empty()) continue;
      double* sums = squares.data() + 3 * (int64_t(i) / kAdamWPiece);
      sums[0] += grad[i] * grad[i];
      sums[1] += (p0[i] - p[i]) * (p0[i] - p[i]);
      sums[2] += p[i] * p[i];
    }
    const auto error = [&](int64_t i) {
      return tol::rounding<float>(p[size_t(i)]) +
             tol::sum(2, std::abs(s.decay * p0[size_t(i)]) + std::abs(s.rate * o[size_t(i)]));
    };
    report.near("master", a.master, p, error);
    if (!a.weight.empty()) {
      report.near("weight", a.weight, p,
                  [&](int64_t i) { return tol::rounding<T>(p[size_t(i)]) + error(i); });
    }
    if (!squares.empty()) {
      report.near("squares", a.squares, squares,
                  [&](int64_t i) { return tol::elementary(2, squares[size_t(i)]); });
    }
  };
  return {bench, [a, bench](Exec on) { muon_update<T>(on, bench->located(a)); }, check,
          muon_update_cost(a)};
}

OpCase sized_case(const char* op, const std::string& name, int64_t n,
                  std::function<OpInstance()> make) {
  if (n > 10000000) return large(op, name, std::move(make));
  return {op, name, std::move(make)};
}

template <typename T>
OpCase update_case(const Update& s) {
  const std::string name = std::string("muon_update ") + dtype_name<T>() +
                           " n=" + std::to_string(s.n) + (s.copy == Copy::kAsked ? " weight" : "") +
                           (s.squares == Squares::kAsked ? " squares" : "");
  const auto make = [s] { return update_instance<T>(s); };
  return sized_case("muon_update", name, s.n, make);
}

}  // namespace

std::vector<OpCase> muon_cases() {
  std::vector<OpCase> cases;
  for (const Momentum& s :
       {Momentum{1, 0.95f, 1.0f, MuonLook::kNesterov},
        Momentum{0, 0.95f, 1.0f, MuonLook::kNesterov},
        Momentum{33003, 0.95f, 0.25f, MuonLook::kNesterov},
        Momentum{20003, 0.9f, 0.25f, MuonLook::kPlain}, Momentum{777, 0.0f, 1.0f, MuonLook::kPlain},
        Momentum{32000000, 0.95f, 0.5f, MuonLook::kNesterov}}) {
    const std::string name = "muon_momentum n=" + std::to_string(s.n) +
                             (s.look == MuonLook::kNesterov ? " nesterov" : " plain");
    const auto make = [s] { return momentum_instance(s); };
    cases.push_back(sized_case("muon_momentum", name, s.n, make));
  }
  for (const Update& s : {Update{1, 1e-4f, 0.02f, Squares::kNone, Copy::kNone},
                          Update{0, 1e-4f, 0.02f, Squares::kAsked, Copy::kAsked},
                          Update{16389, 1e-2f, 0.3f, Squares::kAsked, Copy::kNone},
                          Update{33003, 0.0f, 0.02f, Squares::kNone, Copy::kAsked},
                          Update{33003, 1e-4f, 0.02f, Squares::kAsked, Copy::kAsked}}) {
    cases.push_back(update_case<float>(s));
    cases.push_back(update_case<bf16>(s));
  }
  for (const Squares squares : {Squares::kNone, Squares::kAsked}) {
    cases.push_back(update_case<bf16>({32000000, 1e-4f, 0.02f, squares, Copy::kAsked}));
  }
  return cases;
}

}  // namespace assay
