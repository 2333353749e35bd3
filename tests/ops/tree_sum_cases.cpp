#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/tree_sum.h"
#include "tests/ops/op_case.h"
#include "tests/ref/tree_sum.h"

namespace assay {

namespace {

constexpr int64_t kApart = -1;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();

struct Setup {
  int64_t rows, n;
  int64_t over = kApart;  // the row of `from` that `to` is, or an array of its own
  int64_t start = 0;      // elements by which `from` and `to` begin after an aligned address
  bool special = false;   // NaN, infinities, sums that overflow, zeros of both signs

  std::string name() const {
    return strprintf("tree_sum D=%ld n=%ld start=%ld", long(rows), long(n), long(start)) +
           (over == kApart ? "" : strprintf(" over row %ld", long(over))) +
           (special ? " special" : "");
  }
};

// Column c of a matrix of special values. Overflows depend on the order of the sum.
float special(int64_t row, int64_t column) {
  switch (column % 8) {
    case 0:
      return row == column % 5 ? NAN : 1.0f;
    case 1:
      return row == 2 ? kInf : float(row);
    case 2:
      return row % 3 == 1 ? -kInf : 1e30f;
    case 3:
      return row == 0 ? kInf : row == 3 ? -kInf : 0.0f;
    case 4:
      return row % 2 == 0 ? kMost : -kMost;
    case 5:
      return row % 4 < 2 ? kMost : -kMost;
    case 6:
      return -0.0f;
    default:
      return row % 2 == 0 ? std::numeric_limits<float>::denorm_min() : -0.0f;
  }
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

float chain(const std::vector<float>& leaf) {
  float sum = leaf[0];
  for (size_t r = 1; r < leaf.size(); ++r) sum += leaf[r];
  return sum;
}

OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  const int64_t all = s.rows * s.n;
  const View<float, 1> memory = s.over == kApart ? bench->in<float, 1>("from", {s.start + all})
                                                 : bench->acc<float, 1>("from", {s.start + all});
  const View<float, 2> from{memory.data + s.start, {s.rows, s.n}};
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t i = 0; i < s.n; ++i) {
      // Six magnitudes, so that the order of the sum shows in its bits.
      from.at(r, i) = s.special ? special(r, i) : std::ldexp(from.at(r, i), int(3 * (r + i) % 18));
    }
  }
  bench->commit();
  const auto apart = [&] {
    const View<float, 1> whole = bench->out<float, 1>("to", {s.start + s.n});
    bench->must_move(whole, 4 * double(s.n));
    return whole.rows(s.start, s.n);
  };
  const TreeSum a{.to = s.over == kApart ? apart() : from(s.over), .from = from};
  // All rows are read; over one of them the sum is written.
  bench->must_move(memory, 4 * double(all + (s.over == kApart ? 0 : s.n)));
  std::vector<float> want, others;  // others: rows that the op must leave alone, if `to` is a row
  int64_t like_a_chain = 0;
  for (int64_t i = 0; i < s.n; ++i) {
    std::vector<float> leaf;
    for (int64_t r = 0; r < s.rows; ++r) leaf.push_back(from.at(r, i));
    want.push_back(ref::tree_sum(leaf, 0, leaf.size()));
    like_a_chain += same(want.back(), chain(leaf));
  }
  if (s.over != kApart) others.assign(from.data, from.data + all);
  const auto check = [a, s, want, others, like_a_chain](Report& report) {
    int64_t wrong = 0, first = -1, changed = 0;
    for (int64_t i = 0; i < s.n; ++i) {
      if (same(a.to[i], want[size_t(i)])) continue;
      if (wrong++ == 0) first = i;
    }
    report.below(strprintf("elements with other bits, the first %ld", long(first)), double(wrong),
                 0.5);
    for (int64_t at = 0; at < int64_t(others.size()); ++at) {
      changed += at / s.n != s.over && !same(a.from.data[at], others[size_t(at)]);
    }
    report.below("elements of other rows that changed", double(changed), 0.5);
    // Three rows are a chain in any case.
    if (s.rows > 3 && s.n >= 100 && !s.special) {
      report.below("share of sums that a chain has too", double(like_a_chain) / double(s.n), 0.9);
    }
  };
  return {bench, [a, bench](Exec on) { tree_sum(on, bench->located(a)); }, check, tree_sum_cost(a)};
}

}  // namespace

std::vector<OpCase> tree_sum_cases() {
  std::vector<Setup> setups;
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 63, 64, 65}) {
    for (const int64_t n : {1, 1031, 2056}) setups.push_back({.rows = rows, .n = n});
  }
  for (const int64_t rows : {1, 3, 8, 12, 64}) {
    for (const int64_t n : {0, 7, 16}) setups.push_back({.rows = rows, .n = n});
  }
  for (const int64_t rows : {2, 3, 5, 7, 8, 12, 16}) {
    setups.push_back({.rows = rows, .n = 40, .special = true});
    setups.push_back({.rows = rows, .n = 37, .special = true});
  }
  for (const int64_t rows : {100, 1023, 1024, 1025}) setups.push_back({.rows = rows, .n = 120});
  setups.push_back({.rows = kMostTreeRows, .n = 24});
  setups.push_back({.rows = 6, .n = 64, .start = 3});
  setups.push_back({.rows = 12, .n = 1024, .start = 1});
  for (const int64_t n : {1031, 2056}) {
    setups.push_back({.rows = 1, .n = n, .over = 0});
    setups.push_back({.rows = 5, .n = n, .over = 0});
    setups.push_back({.rows = 8, .n = n, .over = 7});
    setups.push_back({.rows = 12, .n = n, .over = 3});
    setups.push_back({.rows = 20, .n = n, .over = 19});
  }
  setups.push_back({.rows = 8, .n = 100003});
  std::vector<OpCase> cases;
  for (const Setup& s : setups) {
    cases.push_back({"tree_sum", s.name(), [s] { return instance(s); }});
  }
  for (const Setup& s : {Setup{.rows = 8, .n = int64_t{8} << 20, .over = 0},
                         Setup{.rows = 64, .n = int64_t{1} << 20}}) {
    cases.push_back(large("tree_sum", s.name(), [s] { return instance(s); }));
  }
  return cases;
}

}  // namespace assay
