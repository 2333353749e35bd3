// Shared by the case lists of the grouped products: the experts' loads, their rows, and the
// reference over some of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/grouped_linear.h"
#include "tests/ops/amax_case.h"
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
  int64_t per_row = 2;  // assignments per row of x, if gathered

  int64_t experts() const { return int64_t(loads.size()); }
  int64_t assignments() const {
    int64_t sum = 0;
    for (const int32_t n : loads) sum += n;
    return sum;
  }
  // Rows of x.
  int64_t x_rows() const {
    return rows == RowOrder::kInOrder ? assignments() : (assignments() + per_row - 1) / per_row;
  }
  std::string text() const {
    return " " + name + " A=" + std::to_string(assignments()) + " E=" + std::to_string(experts()) +
           " out=" + std::to_string(out) + " in=" + std::to_string(in) +
           (rows == RowOrder::kGathered ? " gather" : "") + scaled_name(scaled);
  }
};

// The workspace of each of its products.
template <typename T>
auto grouped_workspace(const GroupedShape& s) {
  return [experts = s.experts(), assignments = s.assignments(), out = s.out,
          in = s.in](Backend backend) {
    return grouped_workspace_bytes<T>(backend, assignments, experts, out, in);
  };
}

// True if ops with SwiGLU record the amax; cases for timing do not.
inline bool asks_amax(const GroupedShape& s) {
  return s.experts() < 16;
}

struct GroupedIndices {
  View<const int32_t, 1> offsets, row;  // row is empty if the rows are in order
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

// Loads that sum to `assignments`, each from a quarter of the mean to about twice it, except one
// expert with none.
inline std::vector<int32_t> uneven_loads(int64_t experts, int64_t assignments) {
  RandomSequence random({11, stream_id("loads")});
  std::vector<double> share;
  double sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    share.push_back(e == experts / 3 ? 0.0 : 0.25 + 1.5 * random.uniform());
    sum += share.back();
  }
  std::vector<int32_t> loads;
  int64_t left = assignments;
  for (const double s : share) {
    loads.push_back(int32_t(double(assignments) * s / sum));
    left -= loads.back();
  }
  loads.back() += int32_t(left);
  return loads;
}

// Some of the assignments: the reference over them alone, in their order, and the rows it needs of
// x and of the weights (E out, in).
struct LookedAssignments {
  ref::GroupedLinear<double> grouped;
  std::vector<int64_t> chosen, x_rows, weight_rows;
};
// `chosen`: assignments, all of them of these experts.
inline LookedAssignments looked_assignments(const GroupedShape& s, const GroupedIndices& at,
                                            const std::vector<int64_t>& chosen,
                                            const std::vector<int64_t>& experts,
                                            const ProductScale& scale) {
  LookedAssignments looked{
      .grouped = {int64_t(experts.size()), s.out, s.in, {0}, {}, reference_scale(scale)},
      .chosen = chosen,
      .x_rows = {},
      .weight_rows = {}};
  for (const int64_t e : experts) {
    for (const int64_t a : chosen) {
      if (a < at.offsets[e] || a >= at.offsets[e + 1]) continue;
      looked.grouped.row.push_back(int32_t(looked.x_rows.size()));
      looked.x_rows.push_back(at.rows[size_t(a)]);
    }
    looked.grouped.offsets.push_back(int32_t(looked.x_rows.size()));
    for (int64_t o = 0; o < s.out; ++o) looked.weight_rows.push_back(e * s.out + o);
  }
  return looked;
}
// A sample of all assignments, with their experts.
inline LookedAssignments sampled_assignments(const GroupedShape& s, const GroupedIndices& at,
                                             const ProductScale& scale) {
  const auto chosen = sample(s.assignments(), double(s.out * s.in));
  std::vector<int64_t> experts;
  for (int64_t e = 0; e < s.experts(); ++e) {
    const auto from = std::lower_bound(chosen.begin(), chosen.end(), int64_t{at.offsets[e]});
    if (from != chosen.end() && *from < at.offsets[e + 1]) experts.push_back(e);
  }
  return looked_assignments(s, at, chosen, experts, scale);
}
// A stack (E, out, in) as a matrix (E out, in).
template <typename T>
View<T, 2> stacked_rows(const View<T, 3>& stack) {
  return {stack.data, {stack.dim[0] * stack.dim[1], stack.dim[2]}};
}

// The reference over all the assignments.
inline ref::GroupedLinear<double> grouped_reference(const GroupedShape& s, const GroupedIndices& at,
                                                    const ProductScale& scale) {
  ref::GroupedLinear<double> grouped{s.experts(), s.out, s.in, {}, {}, reference_scale(scale)};
  for (int64_t e = 0; e <= s.experts(); ++e) grouped.offsets.push_back(at.offsets[e]);
  grouped.row = at.rows;
  return grouped;
}

template <typename Y>
auto product_rule(double k, const std::vector<double>& want, const std::vector<double>& size) {
  return [k, &want, &size](int64_t i) {
    return tol::rounding<Y>(want[size_t(i)]) + tol::sum(k + 1, size[size_t(i)]);
  };
}

}  // namespace assay
