// What the case lists of the grouped products share: loads of the experts, their rows, and the reference over some of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/grouped_linear.h"
#include "tests/tolerance.h"

namespace assay {

enum class RowOrder { kInOrder, kGathered };

struct GroupedShape {
  std::string name;
  std::vector<int32_t> loads;  // rows of each expert
  int64_t out, in;
  RowOrder rows;
  Scaled scaled = Scaled::kNo;

  int64_t experts() const { return int64_t(loads.size()); }
  int64_t assignments() const {
    int64_t sum = 0;
    for (const int32_t n : loads) sum += n;
    return sum;
  }
  // Of x: two assignments a row where they are gathered.
  int64_t x_rows() const {
    return rows == RowOrder::kInOrder ? assignments() : (assignments() + 1) / 2;
  }
  std::string text() const {
    return " " + name + " A=" + std::to_string(assignments()) + " E=" + std::to_string(experts()) +
           " out=" + std::to_string(out) + " in=" + std::to_string(in) +
           (rows == RowOrder::kGathered ? " gather" : "") + scaled_name(scaled);
  }
};

struct GroupedIndices {
  View<const int32_t, 1> offsets, row;  // row is empty where the rows are in order
  std::vector<int32_t> rows;            // row, or 0, 1, ...
};
inline GroupedIndices grouped_indices(Workbench& bench, const GroupedShape& s) {
  const auto offsets = bench.in<int32_t, 1>("offsets", {s.experts() + 1});
  for (int64_t e = 0, at = 0; e <= s.experts(); ++e) {
    offsets[e] = int32_t(at);
    if (e < s.experts()) at += s.loads[size_t(e)];
  }
  GroupedIndices result{.offsets = offsets, .row = {}, .rows = {}};
  for (int64_t a = 0; a < s.assignments(); ++a) {
    result.rows.push_back(int32_t(s.rows == RowOrder::kInOrder ? a : (a * 7919 + 3) % s.x_rows()));
  }
  if (s.rows == RowOrder::kGathered) {
    const auto row = bench.in<int32_t, 1>("row", {s.assignments()});
    std::copy(result.rows.begin(), result.rows.end(), row.data);
    result.row = row;
  }
  bench.commit();
  return result;
}

// The reference over some of the assignments.
inline ref::GroupedLinear<double> grouped_reference(const GroupedShape& s, const GroupedIndices& at,
                                                    const std::vector<int64_t>& chosen,
                                                    const ProductScale& scale) {
  ref::GroupedLinear<double> grouped{s.experts(), s.out, s.in, {}, {}, reference_scale(scale)};
  size_t next = 0;
  for (int64_t e = 0; e <= s.experts(); ++e) {
    while (next < chosen.size() && chosen[next] < at.offsets[e]) ++next;
    grouped.offsets.push_back(int32_t(next));
  }
  for (const int64_t a : chosen) grouped.row.push_back(at.rows[size_t(a)]);
  return grouped;
}

template <typename Y>
auto product_rule(double k, const std::vector<double>& want, const std::vector<double>& size) {
  return [k, &want, &size](int64_t i) {
    return tol::rounding<Y>(want[size_t(i)]) + tol::sum(k + 1, size[size_t(i)]);
  };
}

}  // namespace assay
