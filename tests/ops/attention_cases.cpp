#include <thread>

#include "base/check.h"
#include "ops/attention.h"
#include "ops/rope.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/attention.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/rope.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

constexpr double kTheta = 10000;

struct Shape {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  double std = 1.0;  // of q, k and v; 30 makes scores of thousands
  CaseSize size = CaseSize::kUsual;
  bool turned = false;  // backward has a table of RoPE

  bool asks_amax() const { return size == CaseSize::kUsual && batch < 8; }
  int64_t tokens() const { return batch * sequence; }
  int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
  ref::Attention<double> reference() const {
    return {batch, sequence, heads, kv_heads, head_dim, {}, {}};
  }
};

std::string shape_name(const Shape& s) {
  return " B=" + std::to_string(s.batch) + " T=" + std::to_string(s.sequence) +
         " H=" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
         " D=" + std::to_string(s.head_dim) + (s.std > 10 ? " extreme" : "");
}

// Relative error of a probability: the error of the largest score (a float sum of D products, and
// its distance to lse), a few exponentials, and the sum it is divided by.
double probability_error(const ref::Attention<double>& attention, const std::vector<double>& qkv,
                         int64_t b, int64_t t, int64_t h) {
  double largest = 0;
  for (int64_t j = 0; j <= t; ++j) {
    const size_t q = attention.q_at(b, t, h), k = attention.k_at(b, j, h);
    double abs_sum = 0;
    for (size_t d = 0; d < size_t(attention.head_dim); ++d) {
      abs_sum += std::abs(qkv[q + d] * qkv[k + d]);
    }
    largest = std::max(largest, abs_sum / std::sqrt(double(attention.head_dim)));
  }
  return tol::sum(double(attention.head_dim), largest) + tol::elementary(3, 1) +
         tol::sum(double(t + 1), 1);
}

// Tolerance of one element of the output. abs_sum, squares: sums of its terms' absolute values and
// squares.
template <typename T>
double out_tolerance(double want, double probability_error, int64_t t, double abs_sum,
                     double squares) {
  return tol::rounding<T>(want) + probability_error * abs_sum + tol::sum(double(t + 1), abs_sum) +
         tol::rounded_factors<T>(std::sqrt(squares));
}

// Large cases check some positions of single heads of single sequences, each as a separate problem.
// They need as many query heads as key-value heads.
struct Part {
  Shape whole;
  int64_t b, h;

  Shape shape() const {
    return {1, whole.sequence, 1, 1, whole.head_dim, whole.std, whole.size, whole.turned};
  }
  // This head's columns in each of `groups` groups of heads: 3 for qkv, 1 for out.
  template <typename T>
  std::vector<std::remove_const_t<T>> of(const View<T, 2>& v, int64_t groups) const {
    std::vector<std::remove_const_t<T>> part;
    for (int64_t t = 0; t < whole.sequence; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        const T* from = v.row(b * whole.sequence + t) + (g * whole.heads + h) * whole.head_dim;
        part.insert(part.end(), from, from + whole.head_dim);
      }
    }
    return part;
  }
};
template <typename T>
std::vector<double> as_doubles(const std::vector<T>& v) {
  std::vector<double> numbers;
  for (const T& x : v) numbers.push_back(double(float(x)));
  return numbers;
}

std::vector<Part> parts(const Shape& s) {
  return {{s, 0, 0}, {s, s.batch / 2, s.heads / 2}, {s, s.batch - 1, s.heads - 1}};
}
// Checked positions: around the edges of tiles, and some between.
std::vector<char> looked_positions(int64_t sequence) {
  std::vector<char> looked(size_t(sequence), 0);
  for (int64_t t = 0; t < sequence; t += 37) looked[size_t(t)] = 1;
  for (int64_t t = 127; t < sequence; t += 384) looked[size_t(t)] = looked[size_t(t) + 1] = 1;
  looked.back() = 1;
  return looked;
}

// Checks the results of one part at the given positions.
template <typename T>
void check_forward_part(Report& report, const AttentionForward<T>& a, const Part& part,
                        const std::vector<char>& looked) {
  const Shape s = part.shape();
  const auto attention = s.reference();
  const auto qkv = as_doubles(part.of(a.qkv, 3)), got = as_doubles(part.of(a.out, 1));
  std::vector<double> want, want_lse, tolerance, lse_tolerance, out, lse;
  for (int64_t t = 0; t < s.sequence; ++t) {
    if (looked[size_t(t)] == 0) continue;
    double log_sum = 0;
    const auto p = attention.row(qkv, 0, t, 0, log_sum);
    const double error = probability_error(attention, qkv, 0, t, 0);
    want_lse.push_back(log_sum);
    lse.push_back(double(a.lse.data[(part.b * part.whole.heads + part.h) * s.sequence + t]));
    lse_tolerance.push_back(error + tol::elementary(1, log_sum));
    for (int64_t d = 0; d < s.head_dim; ++d) {
      double sum = 0, abs_sum = 0, squares = 0;
      for (int64_t j = 0; j <= t; ++j) {
        const double term = p[size_t(j)] * qkv[attention.v_at(0, j, 0) + size_t(d)];
        sum += term;
        abs_sum += std::abs(term);
        squares += term * term;
      }
      want.push_back(sum);
      out.push_back(got[size_t(t * s.head_dim + d)]);
      tolerance.push_back(out_tolerance<T>(sum, error, t, abs_sum, squares));
    }
  }
  const auto near = [&](const char* tensor, std::vector<double>& numbers, const auto& wanted,
                        const auto& limits) {
    const View<double, 1> view{numbers.data(), {int64_t(numbers.size())}};
    report.near(strprintf("%s of sequence %ld head %ld", tensor, long(part.b), long(part.h)), view,
                wanted, [&](int64_t i) { return limits[size_t(i)]; });
  };
  near("out", out, want, tolerance);
  near("lse", lse, want_lse, lse_tolerance);
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  AttentionForward<T> a{.out = bench->out<T, 2>("out", {s.tokens(), s.heads * s.head_dim}),
                        .lse = bench->out<float, 3>("lse", {s.batch, s.heads, s.sequence}),
                        .qkv = bench->in<T, 2>("qkv", {s.tokens(), s.stride()}, normal(s.std)),
                        .batch = s.batch,
                        .sequence = s.sequence,
                        .heads = s.heads,
                        .kv_heads = s.kv_heads,
                        .head_dim = s.head_dim};
  if (s.asks_amax()) a.amax = amax_word(*bench);
  const auto check = [=](Report& report) {
    check_amax(report, a.amax, a.out);
    if (s.size == CaseSize::kLarge) {
      const auto looked = looked_positions(s.sequence);
      for (const Part& part : parts(s)) check_forward_part(report, a, part, looked);
      return;
    }
    const auto qkv = Workbench::doubles(a.qkv);
    auto want = s.reference();
    want.forward(qkv);
    std::vector<double> tolerance(want.out.size()), lse_tolerance(want.lse.size());
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t t = 0; t < s.sequence; ++t) {
          double unused = 0;
          const auto p = want.row(qkv, b, t, h, unused);
          const double error = probability_error(want, qkv, b, t, h);
          const size_t l = size_t((b * s.heads + h) * s.sequence + t);
          lse_tolerance[l] = error + tol::elementary(1, want.lse[l]);
          for (size_t d = 0; d < size_t(s.head_dim); ++d) {
            const size_t v = want.v_at(b, 0, h) + d;
            double abs_sum = 0, squares = 0;
            for (int64_t j = 0; j <= t; ++j) {
              const double term = p[size_t(j)] * qkv[v + size_t(j * want.stride())];
              abs_sum += std::abs(term);
              squares += term * term;
            }
            const size_t o = want.out_at(b, t, h) + d;
            tolerance[o] = out_tolerance<T>(want.out[o], error, t, abs_sum, squares);
          }
        }
      }
    }
    report.near("out", a.out, want.out, [&](int64_t i) { return tolerance[size_t(i)]; });
    report.near("lse", a.lse, want.lse, [&](int64_t i) { return lse_tolerance[size_t(i)]; });
  };
  return {bench, [a, bench](Exec on) { attention_forward<T>(on, bench->located(a)); }, check,
          attention_forward_cost(a)};
}

// Largest error of every element of dqkv before it is rounded to T. The elements are sums of
// products with p and ds. These have the errors of the probabilities, of dp and of delta (which the
// op computes from `out` rounded to T).
template <typename T>
std::vector<double> backward_error(const Shape& s, const ref::Attention<double>& attention,
                                   const std::vector<double>& qkv,
                                   const std::vector<double>& dout) {
  std::vector<double> error(qkv.size(), 0.0), abs_sum = error, squares = error;
  const double scale = 1 / std::sqrt(double(s.head_dim)), width = double(s.head_dim);
  const auto add = [&](size_t i, double term, double term_error) {
    error[i] += term_error;
    abs_sum[i] += std::abs(term);
    squares[i] += term * term;
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.sequence; ++t) {
        double unused = 0, delta = 0, delta_squares = 0, delta_abs = 0;
        const auto p = attention.row(qkv, b, t, h, unused);
        const double p_error = probability_error(attention, qkv, b, t, h);
        const size_t o = attention.out_at(b, t, h), q = attention.q_at(b, t, h);
        for (size_t d = 0; d < size_t(s.head_dim); ++d) {
          const double term = dout[o + d] * attention.out[o + d];
          delta += term;
          delta_abs += std::abs(term);
          delta_squares += term * term;
        }
        const double delta_error =
            tol::rounded_factors<T>(std::sqrt(delta_squares)) + tol::sum(width, delta_abs);
        for (int64_t j = 0; j <= t; ++j) {
          if (!attention.asked(t) && !attention.asked(j)) continue;
          const size_t k = attention.k_at(b, j, h), v = attention.v_at(b, j, h);
          double dp = 0, dp_abs = 0;
          for (size_t d = 0; d < size_t(s.head_dim); ++d) {
            dp += dout[o + d] * qkv[v + d];
            dp_abs += std::abs(dout[o + d] * qkv[v + d]);
          }
          const double probability = p[size_t(j)], ds = probability * (dp - delta) * scale;
          // 0x1p-126: probabilities below the smallest normal float become 0.
          const double off = p_error * probability + 0x1p-126;
          const double ds_error = off * std::abs(dp - delta) * scale +
                                  probability * scale * (tol::sum(width, dp_abs) + delta_error);
          for (size_t d = 0; d < size_t(s.head_dim); ++d) {
            add(q + d, ds * qkv[k + d], ds_error * std::abs(qkv[k + d]));
            add(k + d, ds * qkv[q + d], ds_error * std::abs(qkv[q + d]));
            add(v + d, probability * dout[o + d], off * std::abs(dout[o + d]));
          }
        }
      }
    }
  }
  const double terms = double(s.sequence * (s.heads / s.kv_heads));
  for (size_t i = 0; i < error.size(); ++i) {
    error[i] += tol::sum(terms, abs_sum[i]) + tol::rounded_factors<T>(std::sqrt(squares[i]));
  }
  return error;
}

// Turns the wanted dq and dk back, and their errors with them.
void turn_back(const Shape& s, std::vector<double>& want, std::vector<double>& error) {
  const ref::Rope<double> rope{s.heads, s.kv_heads, s.head_dim, s.sequence, kTheta};
  const std::vector<double> before = want;
  rope.rotate(want, -1);
  for (int64_t i = 0; i < int64_t(want.size()); ++i) {
    const int64_t column = i % s.stride();
    if (column >= (s.heads + s.kv_heads) * s.head_dim || column % s.head_dim >= s.head_dim / 2) {
      continue;
    }
    const auto low = size_t(i), high = size_t(i + s.head_dim / 2);
    const double angle = double(i / s.stride() % s.sequence) *
                         std::pow(kTheta, -2.0 * double(column % s.head_dim) / double(s.head_dim));
    const double c = std::abs(std::cos(angle)), sine = std::abs(std::sin(angle));
    const double x = error[low], y = error[high];
    const double turn = tol::sum(2, std::abs(before[low]) + std::abs(before[high]));
    error[low] = c * x + sine * y + turn;
    error[high] = c * y + sine * x + turn;
  }
}

struct Wanted {
  std::vector<double> dqkv, tolerance;
};
template <typename T>
Wanted wanted_backward(const Shape& s, const ref::Attention<double>& attention,
                       const std::vector<double>& qkv, const std::vector<double>& dout) {
  Wanted w{attention.backward(qkv, dout), {}};
  w.tolerance = backward_error<T>(s, attention, qkv, dout);
  if (s.turned) turn_back(s, w.dqkv, w.tolerance);
  for (size_t i = 0; i < w.dqkv.size(); ++i) w.tolerance[i] += tol::rounding<T>(w.dqkv[i]);
  return w;
}

template <typename T>
void check_backward_part(Report& report, const AttentionBackward<T>& a, const Part& part,
                         const std::vector<char>& looked) {
  const Shape s = part.shape();
  auto attention = s.reference();
  attention.looked = looked;
  const auto qkv = as_doubles(part.of(a.qkv, 3)), dout = as_doubles(part.of(a.dout, 1));
  attention.forward(qkv);
  const auto [want, tolerance] = wanted_backward<T>(s, attention, qkv, dout);
  const auto got = as_doubles(part.of(a.dqkv, 3));
  std::vector<double> chosen, chosen_want, chosen_tolerance;
  for (int64_t i = 0; i < int64_t(want.size()); ++i) {
    if (looked[size_t(i / s.stride())] == 0) continue;
    chosen.push_back(got[size_t(i)]);
    chosen_want.push_back(want[size_t(i)]);
    chosen_tolerance.push_back(tolerance[size_t(i)]);
  }
  const View<double, 1> view{chosen.data(), {int64_t(chosen.size())}};
  report.near(strprintf("dqkv of sequence %ld head %ld", long(part.b), long(part.h)), view,
              chosen_want, [&](int64_t i) { return chosen_tolerance[size_t(i)]; });
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto out = bench->in<T, 2>("out", {s.tokens(), s.heads * s.head_dim});
  const auto lse = bench->in<float, 3>("lse", {s.batch, s.heads, s.sequence});
  const AttentionShape shape{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim};
  AttentionBackward<T> a{
      .dqkv = bench->out<T, 2>("dqkv", {s.tokens(), s.stride()}),
      .scratch = bench->tmp<float, 1>("scratch",
                                      {std::max(attention_backward_scratch(Backend::kCpu, shape),
                                                attention_backward_scratch(Backend::kGpu, shape))}),
      .dout = bench->in<T, 2>("dout", {s.tokens(), s.heads * s.head_dim}),
      .out = out,
      .lse = lse,
      .qkv = bench->in<T, 2>("qkv", {s.tokens(), s.stride()}, normal(s.std)),
      .batch = s.batch,
      .sequence = s.sequence,
      .heads = s.heads,
      .kv_heads = s.kv_heads,
      .head_dim = s.head_dim};
  // The out and lse that forward would have stored.
  auto attention = s.reference();
  if (s.size == CaseSize::kLarge) {
    attention_forward<T>({.threads = int(std::thread::hardware_concurrency())},
                         {.out = out,
                          .lse = lse,
                          .qkv = a.qkv,
                          .batch = s.batch,
                          .sequence = s.sequence,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .head_dim = s.head_dim});
  } else {
    attention.forward(Workbench::doubles(a.qkv));
    for (int64_t i = 0; i < out.size(); ++i) out[i] = T(float(attention.out[size_t(i)]));
    for (int64_t i = 0; i < lse.size(); ++i) lse[i] = float(attention.lse[size_t(i)]);
  }
  if (s.turned) {
    const auto cos = bench->in<float, 2>("cos", {s.sequence, s.head_dim / 2});
    const auto sin = bench->in<float, 2>("sin", {s.sequence, s.head_dim / 2});
    rope_table(cos, sin, kTheta);
    a.cos = cos;
    a.sin = sin;
  }
  bench->commit();
  if (s.asks_amax()) {
    a.dqk_amax = amax_word(*bench);
    a.dv_amax = amax_word(*bench);
  }
  const auto check = [=](Report& report) {
    uint32_t dqk = 0, dv = 0;
    const int64_t width = s.kv_heads * s.head_dim, others = s.stride() - width;
    for (int64_t i = 0; i < s.tokens() && s.asks_amax(); ++i) {
      dqk = std::max(dqk, largest_stored(a.dqkv.row(i), others));
      dv = std::max(dv, largest_stored(a.dqkv.row(i) + others, width));
    }
    check_amax(report, a.dqk_amax, dqk);
    check_amax(report, a.dv_amax, dv);
    if (s.size == CaseSize::kLarge) {
      const auto looked = looked_positions(s.sequence);
      for (const Part& part : parts(s)) check_backward_part(report, a, part, looked);
      return;
    }
    const auto qkv = Workbench::doubles(a.qkv), dout = Workbench::doubles(a.dout);
    const Wanted w = wanted_backward<T>(s, attention, qkv, dout);
    report.near("dqkv", a.dqkv, w.dqkv, [&](int64_t i) { return w.tolerance[size_t(i)]; });
  };
  // Of the scratch, which has room for either backend, the op gets the end: as much as it asks for.
  const auto run = [a, bench, shape](Exec on) {
    const int64_t most = a.scratch.dim[0];
    const int64_t asked = attention_backward_scratch(on.gpu ? Backend::kGpu : Backend::kCpu, shape);
    AttentionBackward<T> here = a;
    here.scratch = a.scratch.rows(most - asked, asked);
    attention_backward<T>(on, bench->located(here));
  };
  return {bench, run, check, attention_backward_cost(a)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const Shape s{2, 5, 4, 2, 3};
  const auto qkv = Workbench::doubles(bench->in<float, 2>("qkv", {s.tokens(), s.stride()}));
  const auto dout =
      Workbench::doubles(bench->in<float, 2>("dout", {s.tokens(), s.heads * s.head_dim}));
  const auto check = [=](Report& report) {
    auto attention = s.reference();
    attention.forward(qkv);
    const auto loss = [&](const ref::ComplexVector& z) {
      ref::Attention<ref::Complex> c{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, {}, {}};
      c.forward(z);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * c.out[i];
      return sum;
    };
    report.below("dqkv by complex step",
                 ref::complex_step_error(loss, qkv, attention.backward(qkv, dout)), 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  // Lengths that are not multiples of a tile, lengths with more tiles than a pipeline has stages,
  // one row, and three and four query heads per key-value head. More tiles of keys than the CPU
  // keeps, in several sequences with several key-value heads: tiles of one head may not be left to
  // the next. Every second backward turns dq and dk.
  bool turned = false;
  for (Shape s :
       {Shape{1, 1, 1, 1, 32, 1.0},    Shape{3, 1, 4, 1, 128, 1.0},   Shape{2, 17, 2, 1, 64, 1.0},
        Shape{1, 64, 2, 2, 32, 1.0},   Shape{2, 65, 4, 2, 32, 1.0},   Shape{1, 200, 2, 2, 32, 1.0},
        Shape{1, 130, 6, 2, 128, 1.0}, Shape{1, 100, 4, 1, 64, 30.0}, Shape{2, 200, 4, 1, 64, 1.0},
        Shape{2, 260, 2, 1, 128, 1.0}, Shape{2, 257, 2, 1, 64, 1.0},  Shape{1, 300, 2, 1, 64, 30.0},
        Shape{1, 520, 1, 1, 128, 1.0}, Shape{1, 600, 4, 1, 64, 1.0},  Shape{1, 512, 4, 2, 64, 1.0},
        Shape{1, 720, 2, 1, 32, 1.0},  Shape{8, 256, 8, 8, 32, 1.0},  Shape{2, 600, 4, 2, 64, 1.0},
        Shape{1, 100, 12, 4, 64, 1.0}, Shape{1, 130, 6, 2, 32, 1.0}}) {
    turned = !turned;
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back({"attention_forward", "attention_forward" + suffix,
                     [s] { return forward_instance<T>(s); }});
    s.turned = turned;
    cases.push_back({"attention_backward", "attention_backward" + suffix + (turned ? " rope" : ""),
                     [s] { return backward_instance<T>(s); }});
    // The shortest cases of the wgmma kernels whose tiles wrap around their stages, for both widths
    // of a head.
    const bool wraps = std::is_same_v<T, bf16> && (s.sequence == 257 || s.sequence == 520);
    for (size_t i = cases.size() - 2; i < cases.size(); ++i) {
      cases[i].race_checked_at_any_cost = wraps;
    }
  }
}

// The speedrun model's heads and micro-batch, and half as many heads of twice the width.
void add_large_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {
           Shape{32, 2048, 12, 12, 64, 1.0, CaseSize::kLarge, true},
           Shape{32, 2048, 6, 6, 128, 1.0, CaseSize::kLarge, true},
       }) {
    const std::string suffix = " bf16" + shape_name(s);
    cases.push_back(large("attention_forward", "attention_forward" + suffix,
                          [s] { return forward_instance<bf16>(s); }));
    cases.push_back(large("attention_backward", "attention_backward" + suffix,
                          [s] { return backward_instance<bf16>(s); }));
  }
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases{
      {"attention_reference", "attention_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
