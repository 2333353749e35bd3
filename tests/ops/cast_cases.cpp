#include <limits>

#include "base/math.h"
#include "ops/cast.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/cast.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

// Edge cases of rounding, followed by random values: ties to both sides, the largest, the smallest,
// signs.
const std::vector<float> kEdges{0.0f,           -0.0f,         1.0f,           1.00390625f,
                                1.01171875f,    1.0039063f,    -1.0039062f,    3.4028235e38f,
                                -3.3961776e38f, 3.3895314e38f, 1e-45f,         4.6e-41f,
                                9.2e-41f,       1.3775e-40f,   1.1754944e-38f, -1e-40f,
                                INFINITY,       -INFINITY,     0.1f,           65504.0f};

View<float, 1> edged_input(Workbench& bench, int64_t n) {
  const View<float, 1> x = bench.in<float, 1>("x", {n});
  for (size_t i = 0; i < kEdges.size() && int64_t(i) < n; ++i) x[int64_t(i)] = kEdges[i];
  bench.commit();
  return x;
}

// The checked elements: all, or some stretches of large cases.
std::vector<int64_t> looked_elements(int64_t n) {
  constexpr int64_t kStretch = 4096;
  std::vector<int64_t> elements;
  for (const int64_t stretch : wide_sample(ceil_div(n, kStretch), 10.0 * kStretch)) {
    const int64_t end = std::min(n, (stretch + 1) * kStretch);
    for (int64_t i = stretch * kStretch; i < end; ++i) elements.push_back(i);
  }
  return elements;
}
template <typename T>
std::vector<double> elements_of(const View<const T, 1>& x, const std::vector<int64_t>& elements) {
  return chosen_doubles(View<const T, 2>{x.data, {x.dim[0], 1}}, elements);
}
template <typename T>
void compare(Report& report, const View<T, 1>& y, const std::vector<int64_t>& elements,
             const std::vector<double>& want) {
  auto got = chosen_rows(y.data, 1, elements);
  report.equal("y", got.view(), want);
}

OpInstance to_bf16_instance(int64_t n) {
  auto bench = std::make_shared<Workbench>();
  const Cast<bf16, float> a{.y = bench->out<bf16, 1>("y", {n}), .x = edged_input(*bench, n)};
  const auto check = [a](Report& report) {
    const auto at = looked_elements(a.x.dim[0]);
    std::vector<double> want = elements_of(a.x, at);
    for (double& x : want) x = ref::bf16_nearest_even(x);
    compare(report, a.y, at, want);
  };
  return {bench, [a, bench](Exec on) { cast(on, bench->located(a)); }, check, cast_cost(a)};
}

OpInstance to_float_instance(int64_t n) {
  auto bench = std::make_shared<Workbench>();
  const Cast<float, bf16> a{.y = bench->out<float, 1>("y", {n}), .x = bench->in<bf16, 1>("x", {n})};
  const auto check = [a](Report& report) {
    const auto at = looked_elements(a.x.dim[0]);
    compare(report, a.y, at, elements_of(a.x, at));
  };
  return {bench, [a, bench](Exec on) { cast(on, bench->located(a)); }, check, cast_cost(a)};
}

// Every NaN stays NaN, whichever mantissa bits are cut off.
OpInstance nan_instance() {
  auto bench = std::make_shared<Workbench>();
  const View<float, 1> x = bench->in<float, 1>("x", {40});
  for (uint32_t i = 0; i < 40; ++i) {
    x[i] = std::bit_cast<float>((i % 2 << 31) | 0x7F800000u | (1u << (i / 2)));
  }
  bench->commit();
  const View<bf16, 1> nearest = bench->out<bf16, 1>("nearest", {40});
  const auto check = [=](Report& report) {
    int lost = 0;
    for (int64_t i = 0; i < 40; ++i) lost += !std::isnan(float(nearest[i]));
    report.below("NaN lost", lost, 0.5);
  };
  const auto run = [=](Exec on) {
    cast<bf16, float>(on, bench->located(Cast<bf16, float>{.y = nearest, .x = x}));
  };
  return {bench, run, check, {}};
}

}  // namespace

std::vector<OpCase> cast_cases() {
  std::vector<OpCase> cases{{"cast", "cast keeps NaN", nan_instance}};
  for (const int64_t n : {0, 1, 19, 16385, 1000003}) {
    const std::string size = " n=" + std::to_string(n);
    cases.push_back({"cast", "cast float to bf16" + size, [n] { return to_bf16_instance(n); }});
    cases.push_back({"cast", "cast bf16 to float" + size, [n] { return to_float_instance(n); }});
  }
  const int64_t n = 64000000;
  const std::string size = " n=" + std::to_string(n);
  cases.push_back(large("cast", "cast float to bf16" + size, [n] { return to_bf16_instance(n); }));
  cases.push_back(large("cast", "cast bf16 to float" + size, [n] { return to_float_instance(n); }));
  return cases;
}

}  // namespace assay
