#include "ops/carry_sum.h"
#include "tests/ops/op_case.h"
#include "tests/ref/carry_sum.h"

namespace assay {

namespace {

// Where the result goes: to an array of its own, over `own`, or over the last of `earlier`.
enum class To { kApart, kOwn, kLast };

// `from`: elements by which every array begins after an aligned address.
OpInstance float_instance(int64_t n, int carried, To to, int64_t from) {
  auto bench = std::make_shared<Workbench>();
  const auto input = [&](const std::string& name, bool written) {
    // Values of several magnitudes, so that the order of the sum shows in its bits.
    const Fill fill = normal(written ? 1e4 : 1.0);
    const View<float, 1> whole = written ? bench->acc<float, 1>(name, {n + from}, fill)
                                         : bench->in<float, 1>(name, {n + from}, fill);
    bench->must_move(whole, (written ? 2.0 : 1.0) * 4 * double(n));
    return whole.rows(from, n);
  };
  CarrySum<float> a{.to = {}, .own = {}, .carried = carried};
  const View<float, 1> own = input("own", to == To::kOwn);
  a.own = own;
  View<float, 1> last;
  for (int l = 0; l < carried; ++l) {
    last = input("earlier" + std::to_string(l), to == To::kLast && l + 1 == carried);
    a.earlier[size_t(l)] = last;
  }
  const auto apart = [&] {
    const View<float, 1> whole = bench->out<float, 1>("to", {n + from});
    bench->must_move(whole, 4 * double(n));
    return whole.rows(from, n);
  };
  a.to = to == To::kOwn ? own : to == To::kLast ? last : apart();
  std::vector<double> want(size_t(n), 0.0);
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> all{double(a.own[i])};
    for (int l = 0; l < carried; ++l) all.push_back(double(a.earlier[size_t(l)][i]));
    want[size_t(i)] = double(ref::carried_sum(all));
  }
  const auto check = [a, want](Report& report) { report.equal("to", a.to, want); };
  return {bench, [a, bench](Exec on) { carry_sum(on, bench->located(a)); }, check,
          carry_sum_cost(a)};
}

// Counts of more than 2^53 would show a sum in double.
OpInstance integer_instance(int64_t n) {
  auto bench = std::make_shared<Workbench>();
  const View<int64_t, 1> to = bench->acc<int64_t, 1>("to", {n}, {Fill::kZero});
  const View<int64_t, 1> own = bench->in<int64_t, 1>("own", {n}, {Fill::kZero});
  for (int64_t i = 0; i < n; ++i) {
    to[i] = (int64_t{1} << 60) + i;
    own[i] = 3 * i + 1;
  }
  bench->commit();
  CarrySum<int64_t> a{.to = to, .own = own, .carried = 1};
  a.earlier[0] = to;
  const auto check = [to](Report& report) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < to.dim[0]; ++i) wrong += to[i] != (int64_t{1} << 60) + 4 * i + 1;
    report.below("elements that differ", double(wrong), 0.5);
  };
  return {bench, [a, bench](Exec on) { carry_sum(on, bench->located(a)); }, check,
          carry_sum_cost(a)};
}

}  // namespace

std::vector<OpCase> carry_sum_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t n, int carried, To to, int64_t from, const char* where) {
    cases.push_back({"carry_sum",
                     "carry_sum n=" + std::to_string(n) + " carried=" + std::to_string(carried) +
                         " from=" + std::to_string(from) + where,
                     [=] { return float_instance(n, carried, to, from); }});
  };
  for (const int64_t n : {0, 1, 7, 513, 16385, 100003}) {
    for (const int carried : {0, 1, 3}) add(n, carried, To::kApart, 0, "");
    add(n, 2, To::kOwn, 0, " over own");
    add(n, 2, To::kLast, 0, " over the last");
  }
  add(1000, kMostCarried, To::kApart, 0, "");
  add(1000, 2, To::kOwn, 3, " over own");
  for (const int64_t n : {0, 1, 65, 4096}) {
    cases.push_back({"carry_sum", "carry_sum int64 n=" + std::to_string(n),
                     [n] { return integer_instance(n); }});
  }
  cases.push_back(large("carry_sum", "carry_sum n=64M carried=1",
                        [] { return float_instance(int64_t{64} << 20, 1, To::kOwn, 0); }));
  return cases;
}

}  // namespace assay
