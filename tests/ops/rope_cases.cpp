#include "ops/rope.h"
#include "tests/ops/amax_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/rope.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

constexpr double kTheta = 10000.0;

struct Shape {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  int64_t tokens() const { return batch * sequence; }
  int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
};

std::string shape_name(const Shape& s) {
  return " B=" + std::to_string(s.batch) + " T=" + std::to_string(s.sequence) +
         " H=" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
         " D=" + std::to_string(s.head_dim);
}

std::vector<int64_t> looked_rows(const Shape& s) {
  return wide_sample(s.tokens(), double(s.stride()));
}

// Compares the checked rows; `before` holds their original values. Rotated elements have the errors
// of two products and of the table; v is a copy.
template <typename T>
void compare(Report& report, const char* name, View<T, 2> got, const std::vector<double>& before,
             const Shape& s, double sign, View<const int32_t, 1> position = {}) {
  auto want = before;
  std::vector<int32_t> positions;
  for (const int64_t row : looked_rows(s)) {
    positions.push_back(position.empty() ? int32_t(row % s.sequence) : position[row]);
  }
  ref::Rope<double>{s.heads, s.kv_heads, s.head_dim, s.sequence, kTheta, positions}.rotate(want,
                                                                                           sign);
  auto rows = chosen_rows(got.data, s.stride(), looked_rows(s));
  report.near(name, rows.view(), want, [&](int64_t i) {
    const int64_t column = i % s.stride(), half = s.head_dim / 2;
    if (column >= (s.heads + s.kv_heads) * s.head_dim) return tol::exact();
    const int64_t partner = column % s.head_dim < half ? i + half : i - half;
    return tol::rounding<T>(want[size_t(i)]) +
           tol::sum(2, std::abs(before[size_t(i)]) + std::abs(before[size_t(partner)]));
  });
}

// v stays, and of the table the rows of the sequence's positions are read.
template <typename T>
void moves_q_and_k(Workbench& bench, const Shape& s, const View<T, 2>& qkv,
                   const View<float, 2>& cos, const View<float, 2>& sin) {
  const int64_t elements = s.tokens() * (s.heads + s.kv_heads) * s.head_dim;
  bench.must_move(qkv, 2 * double(elements) * sizeof(T));
  const double table = 4 * double(std::min(s.tokens(), s.sequence) * (s.head_dim / 2));
  bench.must_move(cos, table);
  bench.must_move(sin, table);
}

enum class Positions { kOfSequences, kGiven };

template <typename T>
OpInstance forward_instance(const Shape& s, Positions positions) {
  auto bench = std::make_shared<Workbench>();
  const auto cos = bench->in<float, 2>("cos", {s.sequence, s.head_dim / 2});
  const auto sin = bench->in<float, 2>("sin", {s.sequence, s.head_dim / 2});
  rope_table(cos, sin, kTheta);
  View<int32_t, 1> position;
  if (positions == Positions::kGiven) {
    position = bench->in<int32_t, 1>("position", {s.tokens()}, {Fill::kZero});
    RandomSequence random({5, stream_id("position")});
    for (int64_t i = 0; i < s.tokens(); ++i) {
      position[i] = int32_t(random.below(uint32_t(s.sequence)));
    }
  }
  bench->commit();
  const RopeForward<T> a{.qkv = bench->acc<T, 2>("qkv", {s.tokens(), s.stride()}),
                         .cos = cos,
                         .sin = sin,
                         .heads = s.heads,
                         .kv_heads = s.kv_heads,
                         .head_dim = s.head_dim,
                         .sequence = s.sequence,
                         .position = position};
  moves_q_and_k(*bench, s, a.qkv, cos, sin);
  const auto before = chosen_doubles(a.qkv, looked_rows(s));
  const auto check = [=](Report& report) {
    compare(report, "qkv", a.qkv, before, s, 1.0, position);
  };
  return {bench, [a, bench](Exec on) { rope_forward<T>(on, bench->located(a)); }, check,
          rope_forward_cost(a)};
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  // The table is longer than the sequence, as when a model is evaluated on shorter sequences.
  const auto cos = bench->in<float, 2>("cos", {s.sequence + 3, s.head_dim / 2});
  const auto sin = bench->in<float, 2>("sin", {s.sequence + 3, s.head_dim / 2});
  rope_table(cos, sin, kTheta);
  bench->commit();
  RopeBackward<T> a{.dqkv = bench->acc<T, 2>("dqkv", {s.tokens(), s.stride()}),
                    .cos = cos,
                    .sin = sin,
                    .heads = s.heads,
                    .kv_heads = s.kv_heads,
                    .head_dim = s.head_dim,
                    .sequence = s.sequence};
  moves_q_and_k(*bench, s, a.dqkv, cos, sin);
  const auto before = chosen_doubles(a.dqkv, looked_rows(s));
  if (s.sequence % 2 == 1) a.amax = amax_word(*bench);
  const auto check = [=](Report& report) {
    compare(report, "dqkv", a.dqkv, before, s, -1.0);
    uint32_t most = 0;
    for (int64_t i = 0; i < s.tokens() && !a.amax.empty(); ++i) {
      most = std::max(most, largest_stored(a.dqkv.row(i), (s.heads + s.kv_heads) * s.head_dim));
    }
    check_amax(report, a.amax, most);
  };
  return {bench, [a, bench](Exec on) { rope_backward<T>(on, bench->located(a)); }, check,
          rope_backward_cost(a)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const auto qkv = Workbench::doubles(bench->in<float, 2>("qkv", {6, 16}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {6, 16}));
  const auto check = [=](Report& report) {
    auto dqkv = dy;
    ref::Rope<double>{2, 1, 4, 3, 100.0}.rotate(dqkv, -1.0);
    const auto loss = [&](const ref::ComplexVector& z) {
      auto y = z;
      ref::Rope<ref::Complex>{2, 1, 4, 3, 100.0}.rotate(y, 1.0);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    report.below("dqkv by complex step", ref::complex_step_error(loss, qkv, dqkv), 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{1, 1, 1, 1, 32}, Shape{3, 7, 6, 2, 64}, Shape{2, 33, 4, 1, 128},
                         Shape{2, 5, 3, 3, 10}, Shape{0, 4, 2, 1, 64}, Shape{3, 5, 5, 2, 48},
                         Shape{8, 256, 8, 8, 32}, Shape{1, 1024, 12, 4, 64}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back({"rope_forward", "rope_forward" + suffix,
                     [s] { return forward_instance<T>(s, Positions::kOfSequences); }});
    if (s.sequence <= 33) {
      cases.push_back({"rope_forward", "rope_forward" + suffix + " positions",
                       [s] { return forward_instance<T>(s, Positions::kGiven); }});
    }
    cases.push_back(
        {"rope_backward", "rope_backward" + suffix, [s] { return backward_instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  const Shape s{32, 2048, 12, 12, 64};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(large("rope_forward", "rope_forward" + suffix,
                        [s] { return forward_instance<bf16>(s, Positions::kOfSequences); }));
  cases.push_back(
      large("rope_backward", "rope_backward" + suffix, [s] { return backward_instance<bf16>(s); }));
}

}  // namespace

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases{{"rope_reference", "rope_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
