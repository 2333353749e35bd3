#include "ops/qk_norm.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/qk_norm.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Shape {
  int64_t tokens, heads, kv_heads, head_dim;
  int64_t normed() const { return (heads + kv_heads) * head_dim; }
  int64_t stride() const { return normed() + kv_heads * head_dim; }
  ref::QkNorm<double> reference() const { return {tokens, heads, kv_heads, head_dim, 1e-5}; }
};

std::string shape_name(const Shape& s) {
  return " N=" + std::to_string(s.tokens) + " H=" + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " D=" + std::to_string(s.head_dim);
}

// The checked tokens: all, or some of large cases.
std::vector<int64_t> looked_tokens(const Shape& s) {
  return wide_sample(s.tokens, 4.0 * double(s.stride()));
}
ref::QkNorm<double> reference_of(const Shape& s, size_t tokens) {
  ref::QkNorm<double> norm = s.reference();
  norm.tokens = int64_t(tokens);
  return norm;
}

// rstd (N, Hq + Hkv) from the reference's two norms.
std::vector<double> rstd_of(const Shape& s, const ref::QkNorm<double>& norm) {
  std::vector<double> rstd;
  for (int64_t i = 0; i < norm.tokens; ++i) {
    for (int64_t h = 0; h < s.heads; ++h) rstd.push_back(norm.q.rstd[size_t(i * s.heads + h)]);
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      rstd.push_back(norm.k.rstd[size_t(i * s.kv_heads + h)]);
    }
  }
  return rstd;
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const QkNormForward<T> a{
      .raw = bench->out<T, 2>("raw", {s.tokens, s.normed()}),
      .rstd = bench->out<float, 2>("rstd", {s.tokens, s.heads + s.kv_heads}),
      .qkv = bench->acc<T, 2>("qkv", {s.tokens, s.stride()}),
      .q_weight = bench->in<float, 1>("q_weight", {s.head_dim}, normal(0.3, 1.0)),
      .k_weight = bench->in<float, 1>("k_weight", {s.head_dim}, normal(0.3, 1.0)),
      .heads = s.heads,
      .kv_heads = s.kv_heads,
      .head_dim = s.head_dim};
  bench->must_move(a.qkv, 2 * double(a.raw.bytes()));  // v stays
  const auto looked = looked_tokens(s);
  const auto before = chosen_doubles(a.qkv, looked);
  const auto check = [=](Report& report) {
    auto norm = reference_of(s, looked.size());
    auto want = before;
    norm.forward(want, Workbench::doubles(a.q_weight), Workbench::doubles(a.k_weight));
    std::vector<double> raw;
    for (int64_t i = 0; i < norm.tokens; ++i) {
      raw.insert(raw.end(), before.begin() + i * s.stride(),
                 before.begin() + i * s.stride() + s.normed());
    }
    auto got_raw = chosen_rows(a.raw.data, s.normed(), looked);
    report.equal("raw", got_raw.view(), raw);
    const auto rstd = rstd_of(s, norm);
    auto got_rstd = chosen_rows(a.rstd.data, s.heads + s.kv_heads, looked);
    report.near("rstd", got_rstd.view(), rstd,
                [&](int64_t i) { return tol::sum(double(s.head_dim), rstd[size_t(i)]); });
    auto got = chosen_rows(a.qkv.data, s.stride(), looked);
    report.near("qkv", got.view(), want, [&](int64_t i) {
      if (i % s.stride() >= s.normed()) return tol::exact();
      return tol::rounding<T>(want[size_t(i)]) + tol::sum(double(s.head_dim), want[size_t(i)]);
    });
  };
  return {bench, [a, bench](Exec on) { qk_norm_forward<T>(on, bench->located(a)); }, check,
          qk_norm_forward_cost(a)};
}

// q and k of these tokens in the layout of qkv, which the reference reads.
template <typename T>
std::vector<double> raw_rows(const Shape& s, const View<const T, 2>& raw,
                             const std::vector<int64_t>& tokens) {
  std::vector<double> rows(tokens.size() * size_t(s.stride()), 0.0);
  for (size_t at = 0; at < tokens.size(); ++at) {
    for (int64_t c = 0; c < s.normed(); ++c) {
      rows[at * size_t(s.stride()) + size_t(c)] = double(float(raw.at(tokens[at], c)));
    }
  }
  return rows;
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto rstd = bench->in<float, 2>("rstd", {s.tokens, s.heads + s.kv_heads});
  QkNormBackward<T> a{.dqkv = bench->acc<T, 2>("dqkv", {s.tokens, s.stride()}),
                      .dq_weight = bench->acc<float, 1>("dq_weight", {s.head_dim}),
                      .dk_weight = bench->acc<float, 1>("dk_weight", {s.head_dim}),
                      .partial = bench->tmp<float, 2>(
                          "partial", {qk_norm_backward_blocks(s.tokens), 2 * s.head_dim}),
                      .raw = bench->in<T, 2>("raw", {s.tokens, s.normed()}),
                      .rstd = rstd,
                      .q_weight = bench->in<float, 1>("q_weight", {s.head_dim}, normal(0.3, 1.0)),
                      .k_weight = bench->in<float, 1>("k_weight", {s.head_dim}, normal(0.3, 1.0)),
                      .heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .head_dim = s.head_dim};
  if (s.tokens % 2 == 1) a.amax = amax_word(*bench);
  bench->must_move(a.dqkv, 2 * double(a.raw.bytes()));  // dv stays
  const auto q_weight = Workbench::doubles(a.q_weight), k_weight = Workbench::doubles(a.k_weight);
#pragma omp parallel for schedule(static) if (s.tokens > 1 << 13)
  for (int64_t i = 0; i < s.tokens; ++i) {
    auto of_one = reference_of(s, 1);
    auto scaled = raw_rows(s, a.raw, {i});
    of_one.forward(scaled, q_weight, k_weight);
    const auto exact = rstd_of(s, of_one);
    for (size_t h = 0; h < exact.size(); ++h) rstd.at(i, int64_t(h)) = float(exact[h]);
  }
  bench->commit();
  const auto looked = looked_tokens(s);
  const auto raw = raw_rows(s, a.raw, looked);
  auto norm = reference_of(s, looked.size());
  auto scaled = raw;
  norm.forward(scaled, q_weight, k_weight);
  const auto rstd_exact = rstd_of(s, norm);
  const auto dqkv0 = chosen_doubles(a.dqkv, looked);
  const auto dq0 = Workbench::doubles(a.dq_weight), dk0 = Workbench::doubles(a.dk_weight);
  const auto check = [=](Report& report) {
    uint32_t most = 0;
    for (int64_t i = 0; i < s.tokens; ++i) {
      most = std::max(most, largest_stored(a.dqkv.row(i), s.normed()));
    }
    check_amax(report, a.amax, most);
    auto want = dqkv0;
    std::vector<double> dq, dk;
    norm.backward(raw, q_weight, k_weight, want, dq, dk);
    auto got = chosen_rows(a.dqkv.data, s.stride(), looked);
    report.near("dqkv", got.view(), want, [&](int64_t i) {
      const int64_t column = i % s.stride();
      if (column >= s.normed()) return tol::exact();
      const double r =
          rstd_exact[size_t(i / s.stride() * (s.heads + s.kv_heads) + column / s.head_dim)];
      // 4: a typical |w dy| + |xhat mean|, as for rmsnorm's dresid.
      return tol::rounding<T>(want[size_t(i)]) + tol::sum(double(s.head_dim), 4 * r);
    });
    if (int64_t(looked.size()) < s.tokens) return;  // the weights' sums need all tokens
    for (size_t d = 0; d < dq.size(); ++d) dq[d] += dq0[d];
    for (size_t d = 0; d < dk.size(); ++d) dk[d] += dk0[d];
    // The mean of |dy xhat| is 2 / pi.
    const auto near_weight = [](double rows) {
      return [rows](int64_t) { return tol::sum(rows + 1, rows + 4); };
    };
    report.near("dq_weight", a.dq_weight, dq, near_weight(double(s.tokens * s.heads)));
    report.near("dk_weight", a.dk_weight, dk, near_weight(double(s.tokens * s.kv_heads)));
  };
  return {bench, [a, bench](Exec on) { qk_norm_backward<T>(on, bench->located(a)); }, check,
          qk_norm_backward_cost(a)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const Shape s{3, 4, 2, 6};
  const auto qkv = Workbench::doubles(bench->in<float, 2>("qkv", {s.tokens, s.stride()}));
  const auto qw = Workbench::doubles(bench->in<float, 1>("qw", {s.head_dim}));
  const auto kw = Workbench::doubles(bench->in<float, 1>("kw", {s.head_dim}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {s.tokens, s.stride()}));
  const auto check = [=](Report& report) {
    auto norm = s.reference();
    auto y = qkv, dqkv = dy;
    norm.forward(y, qw, kw);
    std::vector<double> dq, dk;
    norm.backward(qkv, qw, kw, dqkv, dq, dk);
    const auto loss = [&](const ref::ComplexVector& z, const ref::ComplexVector& q,
                          const ref::ComplexVector& k) {
      ref::QkNorm<ref::Complex> n{s.tokens, s.heads, s.kv_heads, s.head_dim, 1e-5};
      auto out = z;
      n.forward(out, q, k);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * out[i];
      return sum;
    };
    const ref::ComplexVector zc(qkv.begin(), qkv.end()), qc(qw.begin(), qw.end()),
        kc(kw.begin(), kw.end());
    const auto below = [&](const char* claim, const auto& f, const auto& x, const auto& dx) {
      report.below(claim, ref::complex_step_error(f, x, dx), 1e-13);
    };
    below(
        "dqkv by complex step", [&](const auto& z) { return loss(z, qc, kc); }, qkv, dqkv);
    below(
        "dq_weight by complex step", [&](const auto& z) { return loss(zc, z, kc); }, qw, dq);
    below(
        "dk_weight by complex step", [&](const auto& z) { return loss(zc, qc, z); }, kw, dk);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s :
       {Shape{1, 1, 1, 32}, Shape{7, 6, 2, 64}, Shape{67, 4, 1, 128}, Shape{5, 3, 3, 10},
        Shape{0, 2, 1, 64}, Shape{65, 3, 1, 256}, Shape{70, 2, 2, 96}, Shape{2048, 8, 8, 32},
        // Partial sums of more than 32 blocks.
        Shape{2113, 1, 1, 32}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back(
        {"qk_norm_forward", "qk_norm_forward" + suffix, [s] { return forward_instance<T>(s); }});
    cases.push_back(
        {"qk_norm_backward", "qk_norm_backward" + suffix, [s] { return backward_instance<T>(s); }});
  }
}

}  // namespace

std::vector<OpCase> qk_norm_cases() {
  std::vector<OpCase> cases{
      {"qk_norm_reference", "qk_norm_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  const Shape s{16384, 12, 12, 64};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(large("qk_norm_forward", "qk_norm_forward" + suffix,
                        [s] { return forward_instance<bf16>(s); }));
  cases.push_back(large("qk_norm_backward", "qk_norm_backward" + suffix,
                        [s] { return backward_instance<bf16>(s); }));
  return cases;
}

}  // namespace assay
