#include "ops/head_loss.h"
#include "ops/linear.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/head_loss.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

enum class Targets { kSome, kAll, kNone };  // which are counted

struct Shape {
  int64_t tokens, vocab, width;
  Targets counted;
  double std;  // of x; the weight has std 1, so 100 makes logits of thousands
  float gain;
  // Whose scratch a case has. Chunks have as many rows as fit; the large cases, which are timed on
  // a GPU, have a GPU's, which suffices on a CPU too.
  Backend scratch = Backend::kCpu;
  GradientSum sum = GradientSum::kAdd;
  double mean = 0;  // of x; not 0: weights have mean -mean, so that every logit is far below 0
};

constexpr int32_t kMaskId = 1;

std::string shape_name(const Shape& s) {
  const char* counted[] = {"", " all counted", " none counted"};
  return " N=" + std::to_string(s.tokens) + " V=" + std::to_string(s.vocab) +
         " C=" + std::to_string(s.width) + counted[int(s.counted)] +
         (s.std > 10 ? " extreme" : "") + (s.gain == 1.0f ? "" : " gain") +
         (s.sum == GradientSum::kAdd ? "" : " stored") + (s.mean == 0 ? "" : " far below 0");
}

// kSome: one in five is negative or the mask id. kAll: neither occurs.
View<int32_t, 1> targets_of(Workbench& bench, const Shape& s) {
  const auto target = bench.in<int32_t, 1>("target", {s.tokens}, {Fill::kZero});
  RandomSequence random({5, stream_id("target")});
  for (int64_t i = 0; i < s.tokens; ++i) {
    const auto drawn = int32_t(random.below(uint32_t(s.vocab)));
    const int32_t masked = i % 2 == 0 ? -1 : kMaskId;
    const bool counts =
        s.counted == Targets::kAll || (s.counted == Targets::kSome && random.below(5) != 0);
    target[i] = !counts ? masked : drawn == kMaskId ? 0 : drawn;
  }
  bench.commit();
  return target;
}

// Training on a GPU rounds the logits to T; otherwise they are float.
enum class Logits { kFloat, kRounded };

// The expected results for the checked rows, and their tolerances.
struct Expected {
  double loss = 0, loss_tolerance = 0;
  // 0 or 1; tolerance 1: too close to decide
  std::vector<double> most_likely, most_likely_tolerance;
  std::vector<double> nats, nats_tolerance, dx, dx_tolerance, dweight, dweight_tolerance;
};

template <typename T>
Expected expected(const Shape& s, const std::vector<double>& x, const std::vector<double>& weight,
                  const std::vector<int32_t>& target, double grad_scale, Logits logits) {
  const size_t width = size_t(s.width), vocab = size_t(s.vocab);
  ref::HeadLoss<double> head{s.width, s.vocab, target, kMaskId, grad_scale, double(s.gain), {}};
  Expected e;
  e.loss = head.forward(x, weight);
  e.nats = head.nats;
  head.backward(x, weight, e.dx, e.dweight);
  e.nats_tolerance.assign(target.size(), 0.0);
  std::vector<double> dx_abs(x.size()), dx_squares(x.size()), dw_abs(weight.size()),
      dw_squares(weight.size());
  e.dx_tolerance.assign(x.size(), 0.0);
  e.dweight_tolerance.assign(weight.size(), 0.0);
  e.most_likely.assign(target.size(), 0.0);
  e.most_likely_tolerance.assign(target.size(), 0.0);
  for (size_t i = 0; i < target.size(); ++i) {
    if (!head.counted(i)) continue;
    const auto z = head.logits(x, weight, i);
    const double lse = head.logsumexp(z);
    double largest = 0, largest_z = 0;  // largest sum of |terms| of a logit; largest |logit|
    for (size_t v = 0; v < vocab; ++v) {
      double terms = 0;
      for (size_t c = 0; c < width; ++c) {
        terms += std::abs(x[i * width + c] * weight[v * width + c]);
      }
      largest = std::max(largest, terms * double(s.gain));
      if (logits == Logits::kRounded) largest_z = std::max(largest_z, std::abs(z[v]));
    }
    // Relative error of a probability, from its logit, the exponential and the sum.
    const double p_error =
        tol::sum(double(s.width), largest) + tol::elementary(3, 1) + tol::sum(double(s.vocab), 1);
    double margin = 0;
    e.most_likely[i] = head.most_likely(z, i, margin) ? 1 : 0;
    if (margin < 2 * tol::sum(double(s.width), largest)) e.most_likely_tolerance[i] = 1;
    e.nats_tolerance[i] =
        p_error + tol::elementary(2, e.nats[i]) + 2 * tol::unit_roundoff<T>() * largest_z;
    e.loss_tolerance += e.nats_tolerance[i] + tol::elementary(1, e.nats[i]);
    for (size_t v = 0; v < vocab; ++v) {
      const double hit = int32_t(v) == target[i] ? 1 : 0, p = std::exp(z[v] - lse);
      const double scale = grad_scale * double(s.gain), dz = scale * (p - hit);
      // Probabilities below the smallest normal float become 0 (0x1p-126); p - 1 is rounded near 1.
      const double rounded =
          logits == Logits::kRounded ? tol::rounded_logits<T>(p, z[v], largest_z) : 0;
      const double dz_error = scale * (p * p_error + tol::elementary(1, hit) + 0x1p-126 + rounded);
      const auto add = [&](double factor, size_t at, auto& tolerance, auto& abs_sum,
                           auto& squares) {
        tolerance[at] += dz_error * std::abs(factor);
        abs_sum[at] += std::abs(dz * factor);
        squares[at] += dz * factor * dz * factor;
      };
      for (size_t c = 0; c < width; ++c) {
        add(weight[v * width + c], i * width + c, e.dx_tolerance, dx_abs, dx_squares);
        add(x[i * width + c], v * width + c, e.dweight_tolerance, dw_abs, dw_squares);
      }
    }
  }
  // In bf16 each dz is rounded before its two products.
  for (size_t i = 0; i < x.size(); ++i) {
    e.dx_tolerance[i] += tol::rounding<T>(e.dx[i]) + tol::sum(double(s.vocab), dx_abs[i]) +
                         tol::rounded_factors<T>(std::sqrt(dx_squares[i]));
  }
  for (size_t i = 0; i < weight.size(); ++i) {
    e.dweight_tolerance[i] += tol::sum(double(s.tokens) + 1, dw_abs[i]) +
                              tol::rounded_factors<T>(std::sqrt(dw_squares[i]));
  }
  return e;
}

// Large cases check some rows. dweight and loss_sum need all rows, so only small cases check them.
struct Looked {
  std::vector<int64_t> rows;
  bool whole;
};
Looked looked_at(const Shape& s) {
  const auto rows = sample(s.tokens, 4.0 * double(s.vocab * s.width));
  return {rows, int64_t(rows.size()) == s.tokens};
}
std::vector<int32_t> targets_at(View<const int32_t, 1> target, const std::vector<int64_t>& rows) {
  std::vector<int32_t> chosen;
  for (const int64_t r : rows) chosen.push_back(target[r]);
  return chosen;
}

void check_nats(Report& report, View<float, 1> nats, const Expected& want, const Looked& looked) {
  auto got = chosen_rows(nats.data, 1, looked.rows);
  report.near("nats", got.view(), want.nats,
              [&](int64_t i) { return want.nats_tolerance[size_t(i)]; });
}

// The products of a chunk.
template <typename T>
auto workspace_of(int64_t tokens, int64_t width) {
  return [=](Backend backend) {
    return linear_workspace_bytes<T>(backend, head_loss_chunk_rows(tokens), width);
  };
}

template <typename T>
OpInstance training_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const bool stores = s.sum == GradientSum::kStore;
  const HeadLoss<T> a{
      .dx = bench->out<T, 2>("dx", {s.tokens, s.width}),
      .nats = bench->out<float, 1>("nats", {s.tokens}),
      .loss_sum = bench->acc<double, 1>("loss_sum", {1}),
      .dweight = stores ? bench->out<float, 2>("dweight", {s.vocab, s.width})
                        : bench->acc<float, 2>("dweight", {s.vocab, s.width},
                                               normal(1.0 / double(s.tokens))),
      .scratch = bench->tmp<std::byte, 1>(
          "scratch", {head_loss_scratch_bytes<T>(s.scratch, s.tokens, s.vocab)}),
      .x = bench->in<T, 2>("x", {s.tokens, s.width}, normal(s.std, s.mean)),
      .weight = packed_weight<T>(*bench, s.vocab, s.width, normal(1.0, -s.mean)),
      .target = targets_of(*bench, s),
      .grad_scale = bench->in<float, 1>("grad_scale", {1}, normal(0, 1.0 / double(s.tokens))),
      .mask_id = kMaskId,
      .logit_gain = s.gain,
      .sum = s.sum};
  auto dweight0 = looked_at(s).whole ? Workbench::doubles(a.dweight) : std::vector<double>{};
  if (stores) dweight0.assign(dweight0.size(), 0.0);
  const auto loss0 = Workbench::doubles(a.loss_sum);
  const auto logits = std::make_shared<Logits>(Logits::kFloat);
  const auto check = [=](Report& report) {
    const Looked looked = looked_at(s);
    const auto x = chosen_doubles(a.x, looked.rows);
    const auto want =
        expected<T>(s, x, Workbench::doubles(a.weight.plain), targets_at(a.target, looked.rows),
                    double(a.grad_scale[0]), *logits);
    check_nats(report, a.nats, want, looked);
    auto dx = chosen_rows(a.dx.data, s.width, looked.rows);
    report.near("dx", dx.view(), want.dx, [&](int64_t i) { return want.dx_tolerance[size_t(i)]; });
    if (!looked.whole) return;
    report.near("loss_sum", a.loss_sum, {loss0[0] + want.loss}, [&](int64_t) {
      return want.loss_tolerance + tol::elementary(1, want.loss + std::abs(loss0[0]));
    });
    report.near("dweight", a.dweight, added(want.dweight, dweight0), [&](int64_t i) {
      return want.dweight_tolerance[size_t(i)] +
             tol::sum(double(s.tokens) + 1, dweight0[size_t(i)]);
    });
  };
  const auto run = [a, logits, bench](Exec on) {
    *logits = on.gpu ? Logits::kRounded : Logits::kFloat;
    head_loss<T>(on, bench->located(a));
  };
  return {bench, run, check, head_loss_cost(a), workspace_of<T>(s.tokens, s.width)};
}

// Makes the most likely id the target of every third checked row.
template <typename T>
void aim_at_likeliest(const HeadLossEval<T>& a, View<int32_t, 1> target, const Shape& s) {
  const ref::HeadLoss<double> head{s.width, s.vocab, {}, kMaskId, 1.0, double(s.gain), {}};
  const auto x = Workbench::doubles(a.x), weight = Workbench::doubles(a.weight.plain);
  for (const int64_t row : looked_at(s).rows) {
    if (row % 3 != 0 || s.counted == Targets::kNone) continue;
    const auto z = head.logits(x, weight, size_t(row));
    target[row] = int32_t(std::max_element(z.begin(), z.end()) - z.begin());
  }
}

template <typename T>
OpInstance eval_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const View<int32_t, 1> target = targets_of(*bench, s);
  const HeadLossEval<T> a{
      .nats = bench->out<float, 1>("nats", {s.tokens}),
      .most_likely = bench->out<uint8_t, 1>("most_likely", {s.tokens}),
      .loss_sum = bench->acc<double, 1>("loss_sum", {1}),
      .scratch = bench->tmp<std::byte, 1>(
          "scratch", {head_loss_eval_scratch_bytes<T>(s.scratch, s.tokens, s.vocab)}),
      .x = bench->in<T, 2>("x", {s.tokens, s.width}, normal(s.std, s.mean)),
      .weight = packed_weight<T>(*bench, s.vocab, s.width, normal(1.0, -s.mean)),
      .target = target,
      .mask_id = kMaskId,
      .logit_gain = s.gain};
  aim_at_likeliest(a, target, s);
  bench->commit();
  const auto loss0 = Workbench::doubles(a.loss_sum);
  const auto check = [=](Report& report) {
    const Looked looked = looked_at(s);
    const auto x = chosen_doubles(a.x, looked.rows);
    const auto want = expected<T>(s, x, Workbench::doubles(a.weight.plain),
                                  targets_at(a.target, looked.rows), 1.0, Logits::kFloat);
    check_nats(report, a.nats, want, looked);
    auto likely = chosen_rows(a.most_likely.data, 1, looked.rows);
    report.near("most_likely", likely.view(), want.most_likely,
                [&](int64_t i) { return want.most_likely_tolerance[size_t(i)]; });
    if (!looked.whole) return;
    report.near("loss_sum", a.loss_sum, {loss0[0] + want.loss}, [&](int64_t) {
      return want.loss_tolerance + tol::elementary(1, want.loss + std::abs(loss0[0]));
    });
  };
  return {bench, [a, bench](Exec on) { head_loss_eval<T>(on, bench->located(a)); }, check,
          head_loss_eval_cost(a), workspace_of<T>(s.tokens, s.width)};
}

// Ids 2, 3 and 7 have the largest logit: the first of them is the most likely. Ids 2 and 3 are in
// the same 16 bytes.
template <typename T>
OpInstance ties_instance() {
  auto bench = std::make_shared<Workbench>();
  const int64_t vocab = 8;
  const std::vector<int32_t> targets{2, 3, 7, 0};
  const auto target = bench->in<int32_t, 1>("target", {int64_t(targets.size())}, {Fill::kZero});
  std::copy(targets.begin(), targets.end(), target.data);
  const auto x = bench->in<T, 2>("x", {target.dim[0], 1}, {Fill::kZero});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = T(1.0f);
  const auto plain = bench->in<T, 2>("weight", {vocab, 1}, {Fill::kZero});
  for (int64_t v = 0; v < vocab; ++v) plain[v] = T(v == 2 || v == 3 || v == 7 ? 2.0f : 0.5f);
  const auto packed =
      bench->in<std::byte, 1>("packed", {weight_pack_bytes<T>(vocab, 1)}, {Fill::kZero});
  weight_pack<T>({.threads = 1}, {.packed = packed, .plain = plain});
  bench->commit();
  bench->must_move(packed, 0);
  const HeadLossEval<T> a{
      .nats = bench->out<float, 1>("nats", {target.dim[0]}),
      .most_likely = bench->out<uint8_t, 1>("most_likely", {target.dim[0]}),
      .loss_sum = bench->acc<double, 1>("loss_sum", {1}),
      .scratch = bench->tmp<std::byte, 1>(
          "scratch", {head_loss_eval_scratch_bytes<T>(Backend::kCpu, target.dim[0], vocab)}),
      .x = x,
      .weight = {plain, packed},
      .target = target,
      .mask_id = -1,
      .logit_gain = 1.0f};
  const auto check = [a](Report& report) {
    report.equal("most_likely", a.most_likely, {1, 0, 0, 0});
  };
  return {bench, [a, bench](Exec on) { head_loss_eval<T>(on, bench->located(a)); }, check,
          head_loss_eval_cost(a), workspace_of<T>(target.dim[0], 1)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const auto x = Workbench::doubles(bench->in<float, 2>("x", {6, 3}));
  const auto weight = Workbench::doubles(bench->in<float, 2>("weight", {5, 3}));
  const auto check = [=](Report& report) {
    const std::vector<int32_t> target{0, -1, 4, 1, 2, 0};
    const ref::HeadLoss<double> head{3, 5, target, kMaskId, 0.25, 1.5, {}};
    ref::Vector dx, dweight;
    head.backward(x, weight, dx, dweight);
    const auto loss = [&](const ref::ComplexVector& x_, const ref::ComplexVector& w_) {
      ref::HeadLoss<ref::Complex> h{3, 5, target, kMaskId, 0.25, 1.5, {}};
      return 0.25 * h.forward(x_, w_);
    };
    const ref::ComplexVector xc(x.begin(), x.end()), wc(weight.begin(), weight.end());
    report.below("dx by complex step",
                 ref::complex_step_error([&](const auto& z) { return loss(z, wc); }, x, dx), 1e-13);
    report.below(
        "dweight by complex step",
        ref::complex_step_error([&](const auto& z) { return loss(xc, z); }, weight, dweight),
        1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  // Six chunks and a part on a CPU. On a GPU, whose chunks have no gaps, four and a part; training
  // in bf16, where they have no float logits either, one and a part.
  const int64_t many = 6 * head_loss_chunk_rows(INT64_MAX) + 53;
  // 120000: a row of logits exceeds the shared memory of a GPU's block, even in bf16.
  for (const Shape& s :
       {Shape{1, 2, 1, Targets::kAll, 1.0, 1.0f}, Shape{7, 65, 33, Targets::kSome, 1.0, 1.0f},
        Shape{33, 300, 64, Targets::kNone, 1.0, 1.0f},
        Shape{19, 131, 40, Targets::kSome, 100.0, 1.0f},
        Shape{50, 259, 24, Targets::kAll, 1.0, 0.3f},
        Shape{many, 70, 12, Targets::kSome, 1.0, 1.0f}, Shape{0, 9, 8, Targets::kAll, 1.0, 1.0f},
        Shape{40, 1000, 24, Targets::kSome, 1.0, 1.0f},
        Shape{9, 70, 8, Targets::kAll, 0.0, 1.0f},  // x is 0, so all logits are equal
        Shape{5, 5000, 16, Targets::kSome, 1.0, 0.5f},
        // On a CPU rows of logits have gaps, above all those of a power of two.
        Shape{37, 2048, 40, Targets::kSome, 1.0, 1.0f},
        Shape{35, 2047, 24, Targets::kAll, 1.0, 1.0f},
        Shape{77, 4096, 16, Targets::kSome, 1.0, 0.5f, Backend::kCpu, GradientSum::kStore},
        Shape{2, 120000, 3, Targets::kAll, 1.0, 1.0f},
        Shape{2, 117001, 3, Targets::kAll, 1.0, 1.0f},
        Shape{2048, 8192, 256, Targets::kAll, 0.06, 1.0f},
        Shape{0, 9, 8, Targets::kAll, 1.0, 1.0f, Backend::kCpu, GradientSum::kStore},
        Shape{many, 70, 12, Targets::kSome, 1.0, 0.3f, Backend::kCpu, GradientSum::kStore},
        Shape{9, 70, 24, Targets::kAll, 1.0, 1.0f, Backend::kCpu, GradientSum::kAdd, 3.5}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back({"head_loss", "head_loss" + suffix, [s] { return training_instance<T>(s); }});
    cases.push_back(
        {"head_loss_eval", "head_loss_eval" + suffix, [s] { return eval_instance<T>(s); }});
  }
  cases.push_back(
      {"head_loss_eval", std::string("head_loss_eval ties ") + dtype_name<T>(), ties_instance<T>});
}

// The head of the speedrun model.
void add_large_cases(std::vector<OpCase>& cases) {
  const Shape s{8192, 50304, 768, Targets::kAll, 0.04, 1.0f, Backend::kGpu};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(
      large("head_loss", "head_loss" + suffix, [s] { return training_instance<bf16>(s); }));
  cases.push_back(
      large("head_loss_eval", "head_loss_eval" + suffix, [s] { return eval_instance<bf16>(s); }));
}

}  // namespace

std::vector<OpCase> head_loss_cases() {
  std::vector<OpCase> cases{
      {"head_loss_reference", "head_loss_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
