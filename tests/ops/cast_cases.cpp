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

const RandomKey kKey{42, stream_id("moment"), 17};

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
  const View<bf16, 1> drawn = bench->out<bf16, 1>("drawn", {40});
  const auto check = [=](Report& report) {
    int lost = 0;
    for (int64_t i = 0; i < 40; ++i) {
      lost += !std::isnan(float(nearest[i])) + !std::isnan(float(drawn[i]));
    }
    report.below("NaN lost", lost, 0.5);
  };
  const auto run = [=](Exec on) {
    cast<bf16, float>(on, bench->located(Cast<bf16, float>{.y = nearest, .x = x}));
    cast_stochastic(on, bench->located(CastStochastic{.y = drawn, .x = x, .key = kKey}));
  };
  return {bench, run, check, {}};
}

OpInstance stochastic_instance(int64_t n, int64_t first) {
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 1> y = bench->out<bf16, 1>("y", {n});
  const CastStochastic a{.y = y, .x = edged_input(*bench, n), .key = kKey, .first = first};
  const auto check = [a](Report& report) {
    const auto at = looked_elements(a.x.dim[0]);
    std::vector<double> want = elements_of(a.x, at);
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = ref::bf16_stochastic(want[i], ref::draw16(a.key, a.first + at[i]));
    }
    compare(report, a.y, at, want);
  };
  return {bench, [a, bench](Exec on) { cast_stochastic(on, bench->located(a)); }, check,
          cast_stochastic_cost(a)};
}

// The mean over n draws of one value equals the value within 6 standard deviations of at most step
// / 2 / sqrt(n).
OpInstance unbiased_instance() {
  const int64_t n = 1 << 20;
  auto bench = std::make_shared<Workbench>();
  const double value = double(1.0f + 0.3f / 128);
  const View<bf16, 1> y = bench->out<bf16, 1>("y", {n});
  const View<const float, 1> x = bench->in<float, 1>("x", {n}, normal(0, value));
  const CastStochastic a{.y = y, .x = x, .key = kKey};
  const auto check = [=](Report& report) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(float(a.y[i])) - value;
    report.below("mean of the roundings - value", std::abs(sum / double(n)),
                 6 * ref::bf16_step(value) / 2 / std::sqrt(double(n)));
  };
  return {bench, [a, bench](Exec on) { cast_stochastic(on, bench->located(a)); }, check,
          cast_stochastic_cost(a)};
}

}  // namespace

std::vector<OpCase> cast_cases() {
  std::vector<OpCase> cases{{"cast", "cast keeps NaN", nan_instance},
                            {"cast_stochastic", "cast_stochastic is unbiased", unbiased_instance}};
  for (const int64_t n : {0, 1, 19, 16385, 1000003}) {
    const std::string size = " n=" + std::to_string(n);
    cases.push_back({"cast", "cast float to bf16" + size, [n] { return to_bf16_instance(n); }});
    cases.push_back({"cast", "cast bf16 to float" + size, [n] { return to_float_instance(n); }});
    for (const int64_t first : {int64_t{0}, int64_t{3}, (int64_t{1} << 36) + 8}) {
      cases.push_back({"cast_stochastic",
                       "cast_stochastic" + size + " first=" + std::to_string(first),
                       [n, first] { return stochastic_instance(n, first); }});
    }
  }
  const int64_t n = 64000000;
  const std::string size = " n=" + std::to_string(n);
  cases.push_back(large("cast", "cast float to bf16" + size, [n] { return to_bf16_instance(n); }));
  cases.push_back(large("cast", "cast bf16 to float" + size, [n] { return to_float_instance(n); }));
  cases.push_back(large("cast_stochastic", "cast_stochastic" + size + " first=8",
                        [n] { return stochastic_instance(n, 8); }));
  return cases;
}

}  // namespace assay
