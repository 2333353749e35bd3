#include "ops/amax.h"
#include "tests/ops/quantise_case.h"
#include "tests/ref/quantise.h"

namespace assay {

namespace {

constexpr uint32_t kSigns = 0b1010011101001110;

// The largest magnitudes of x and of x rotated, slice by slice: groups of 16 rows are rotated by
// themselves.
struct Largest {
  float plain = 0, rotated = 0;
};
template <typename T>
Largest largest_in(const View<const T, 2>& x) {
  constexpr int64_t kSlice = 64;
  const int64_t rows = x.dim[0], columns = x.dim[1];
  float plain = 0, rotated = 0;
#pragma omp parallel for schedule(static) reduction(max : plain, rotated) if (x.size() > 1 << 20)
  for (int64_t first = 0; first < rows; first += kSlice) {
    const int64_t count = std::min(kSlice, rows - first), padded = ceil_div(count, 16) * 16;
    const std::vector<float> slice = floats(x.rows(first, count));
    plain = std::max(plain, largest_of(slice));
    rotated =
        std::max(rotated, largest_of(ref::rotated_columns(slice, count, columns, kSigns, padded)));
  }
  return {plain, rotated};
}

template <typename T>
OpInstance instance(int64_t rows, int64_t columns) {
  auto bench = std::make_shared<Workbench>();
  const Amax<T> a{.amax = bench->out<float, 1>("amax", {1}),
                  .rotated = bench->out<float, 1>("rotated", {1}),
                  .x = uneven_matrix<T>(*bench, "x", rows, columns),
                  .signs = kSigns};
  const auto check = [=](Report& report) {
    const Largest want = largest_in(a.x);
    report.equal("amax", a.amax, {double(want.plain)});
    report.equal("rotated", a.rotated, {double(want.rotated)});
  };
  return {bench, [a, bench](Exec on) { amax(on, bench->located(a)); }, check, amax_cost(a)};
}

// Infinity and NaN are propagated, by the amax without rotation only.
OpInstance not_finite_instance(float bad) {
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 2> x = bench->in<bf16, 2>("x", {40, 300});
  x.at(39, 299) = bf16(-bad);
  bench->commit();
  const Amax<bf16> a{.amax = bench->out<float, 1>("amax", {1}), .x = x};
  const auto check = [=](Report& report) {
    const uint32_t want = std::isnan(bad) ? 0x7FC00000u : 0x7F800000u;
    report.below("amax bits differ", std::bit_cast<uint32_t>(a.amax[0]) == want ? 0 : 1, 0.5);
  };
  return {bench, [a, bench](Exec on) { amax(on, bench->located(a)); }, check, amax_cost(a)};
}

}  // namespace

std::vector<OpCase> amax_cases() {
  std::vector<OpCase> cases{
      {"amax", "amax of infinity", [] { return not_finite_instance(INFINITY); }},
      {"amax", "amax of NaN", [] { return not_finite_instance(NAN); }}};
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{0, 64}, {1, 1}, {17, 300}, {512, 768}}) {
    const std::string size = " R=" + std::to_string(rows) + " C=" + std::to_string(columns);
    cases.push_back({"amax", "amax float" + size,
                     [rows = rows, columns = columns] { return instance<float>(rows, columns); }});
    cases.push_back({"amax", "amax bf16" + size,
                     [rows = rows, columns = columns] { return instance<bf16>(rows, columns); }});
  }
  cases.push_back(
      large("amax", "amax bf16 R=16384 C=3072", [] { return instance<bf16>(16384, 3072); }));
  return cases;
}

}  // namespace assay
