#include "ops/hadamard.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/quantise_case.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

constexpr uint32_t kSigns = 0b0011011110100101;

// Small integers, so that every sum and its quarter is exact in T.
template <typename T>
View<T, 2> integers(Workbench& bench, const std::string& name, int64_t rows, int64_t columns) {
  const View<T, 2> x = bench.in<T, 2>(name, {rows, columns});
  RandomSequence random({3, stream_id(name), 0});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = T(float(int(random.below(15)) - 7));
  bench.commit();
  return x;
}

// The checked rows of y: all, or whole groups of 16 of large cases.
template <typename T>
std::vector<int64_t> looked_rows(const Hadamard<T>& a) {
  std::vector<int64_t> rows;
  for (const int64_t group : wide_sample(a.y.dim[0] / 16, 256.0 * double(a.y.dim[1]))) {
    for (int64_t i = 16 * group; i < 16 * group + 16; ++i) rows.push_back(i);
  }
  return rows;
}

// These rows of the transform by its matrix (1/4) (-1)^popcount(i and j), with the signs applied to
// the untransformed side.
template <typename T>
std::vector<double> by_matrix(const Hadamard<T>& a, const std::vector<int64_t>& rows) {
  const int64_t columns = a.y.dim[1];
  std::vector<double> y(rows.size() * size_t(columns), 0.0);
  for (size_t at = 0; at < rows.size(); ++at) {
    const int64_t i = rows[at];
    for (int64_t j = i / 16 * 16; j < std::min(i / 16 * 16 + 16, a.x.dim[0]); ++j) {
      const int64_t flipped = a.way == HadamardWay::kForward ? j : i;
      const bool minus = (__builtin_popcountll(uint64_t(i % 16) & uint64_t(j % 16)) +
                          int(a.signs >> (flipped % 16) & 1)) %
                         2;
      for (int64_t c = 0; c < columns; ++c) {
        y[at * size_t(columns) + size_t(c)] += (minus ? -0.25 : 0.25) * double(float(a.x.at(j, c)));
      }
    }
  }
  return y;
}

template <typename T>
OpInstance exact_instance(int64_t rows, int64_t columns, HadamardWay way) {
  auto bench = std::make_shared<Workbench>();
  const int64_t padded = (rows + 15) / 16 * 16;
  const Hadamard<T> a{.y = bench->out<T, 2>("y", {padded, columns}),
                      .amax = bench->out<float, 1>("amax", {1}),
                      .x = integers<T>(*bench, "x", rows, columns),
                      .signs = kSigns,
                      .way = way};
  const auto check = [a](Report& report) {
    const std::vector<double> want = by_matrix(a, looked_rows(a));
    report.equal("y", a.y, want);
    double most = 0;
    for (const double y : want) most = std::max(most, std::abs(y));
    report.equal("amax", a.amax, {most});
  };
  return {bench, [a, bench](Exec on) { hadamard(on, bench->located(a)); }, check, hadamard_cost(a)};
}

// Numbers of every size, without amax: exact within the rule of sums and one rounding to T.
template <typename T>
OpInstance rounded_instance(int64_t rows, int64_t columns) {
  auto bench = std::make_shared<Workbench>();
  const int64_t padded = (rows + 15) / 16 * 16;
  const Hadamard<T> a{.y = bench->out<T, 2>("y", {padded, columns}),
                      .x = uneven_matrix<T>(*bench, "x", rows, columns),
                      .signs = kSigns};
  const auto check = [a](Report& report) {
    const std::vector<int64_t> rows = looked_rows(a);
    const std::vector<double> want = by_matrix(a, rows);
    const int64_t columns = a.y.dim[1];
    auto got = chosen_rows(a.y.data, columns, rows);
    report.near("y", got.view(), want, [&](int64_t i) {
      const int64_t first = rows[size_t(i / columns)] / 16 * 16;
      double size = 0;
      for (int64_t j = first; j < std::min(first + 16, a.x.dim[0]); ++j) {
        size += 0.25 * std::abs(double(float(a.x.at(j, i % columns))));
      }
      return tol::rounding<T>(want[size_t(i)]) + tol::sum(16, size);
    });
  };
  return {bench, [a, bench](Exec on) { hadamard(on, bench->located(a)); }, check, hadamard_cost(a)};
}

// With both operands rotated, a sum over rows is the same to the bit, and the inverse restores x.
OpInstance cancels_instance(int64_t rows, int64_t columns) {
  auto bench = std::make_shared<Workbench>();
  const int64_t padded = (rows + 15) / 16 * 16;
  const auto rotated = [&](const std::string& name) {
    return Hadamard<float>{.y = bench->out<float, 2>("rotated " + name, {padded, columns}),
                           .x = integers<float>(*bench, name, rows, columns),
                           .signs = kSigns};
  };
  const Hadamard<float> a = rotated("a"), b = rotated("b");
  const Hadamard<float> back{.y = bench->out<float, 2>("a again", {padded, columns}),
                             .x = a.y,
                             .signs = kSigns,
                             .way = HadamardWay::kInverse};
  bench->must_move(a.y, 2 * double(a.y.bytes()));  // written, then read
  const auto check = [=](Report& report) {
    double wrong = 0;
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double plain = 0, turned = 0;
        for (int64_t r = 0; r < rows; ++r) plain += double(a.x.at(r, i)) * double(b.x.at(r, j));
        for (int64_t r = 0; r < padded; ++r) turned += double(a.y.at(r, i)) * double(b.y.at(r, j));
        wrong += plain != turned;
      }
    }
    report.below("sums that changed", wrong, 0.5);
    std::vector<double> want = Workbench::doubles(a.x);
    want.resize(size_t(back.y.size()), 0.0);
    report.equal("a again", back.y, want);
  };
  const auto run = [=](Exec on) {
    for (const Hadamard<float>& one : {a, b, back}) hadamard(on, bench->located(one));
  };
  return {bench, run, check, hadamard_cost(a) + hadamard_cost(b) + hadamard_cost(back)};
}

}  // namespace

std::vector<OpCase> hadamard_cases() {
  std::vector<OpCase> cases{{"hadamard", "hadamard cancels in a product R=150 C=24",
                             [] { return cancels_instance(150, 24); }}};
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{0, 16}, {1, 3}, {33, 130}, {512, 768}}) {
    const std::string size = " R=" + std::to_string(rows) + " C=" + std::to_string(columns);
    const int64_t r = rows, c = columns;
    cases.push_back({"hadamard", "hadamard bf16 integers" + size,
                     [=] { return exact_instance<bf16>(r, c, HadamardWay::kForward); }});
    cases.push_back({"hadamard", "hadamard float integers inverse" + size,
                     [=] { return exact_instance<float>(r, c, HadamardWay::kInverse); }});
    cases.push_back(
        {"hadamard", "hadamard bf16" + size, [=] { return rounded_instance<bf16>(r, c); }});
    cases.push_back(
        {"hadamard", "hadamard float" + size, [=] { return rounded_instance<float>(r, c); }});
  }
  cases.push_back(large("hadamard", "hadamard bf16 R=16384 C=3072",
                        [] { return rounded_instance<bf16>(16384, 3072); }));
  return cases;
}

}  // namespace assay
