#include <algorithm>
#include <type_traits>

#include "ops/grouped_linear.h"
#include "tests/ops/grouped_case.h"
#include "tests/ref/complex_step.h"

namespace assay {

namespace {

using Rows = RowOrder;
using Shape = GroupedShape;
using Indices = GroupedIndices;

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const Indices at = grouped_indices(*bench, s);
  const GroupedForward<T> a{.y = bench->out<T, 2>("y", {s.assignments(), s.out}),
                            .x = bench->in<T, 2>("x", {s.x_rows(), s.in}),
                            .row = at.row,
                            .offsets = at.offsets,
                            .weight = packed_stack<T>(*bench, s.experts(), s.out, s.in),
                            .scale = product_scale(*bench, s.scaled)};
  const auto check = [a, s, at](Report& report) {
    const auto looked = sampled_assignments(s, at, a.scale);
    const auto x = chosen_doubles(a.x, looked.x_rows);
    const auto weight = chosen_doubles(stacked_rows(a.weight.plain), looked.weight_rows);
    const auto want = looked.grouped.forward(x, weight);
    const auto size = looked.grouped.forward(absolute(x), absolute(weight));
    auto got = chosen_rows(a.y.data, s.out, looked.chosen);
    report.near("y", got.view(), want, product_rule<T>(double(s.in), want, size));
  };
  return {bench, [a, bench](Exec on) { grouped_linear_forward<T>(on, bench->located(a)); }, check,
          grouped_linear_forward_cost(a), grouped_workspace<T>(s)};
}

template <typename T>
OpInstance dgrad_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const Indices at = grouped_indices(*bench, s);
  const GroupedDgrad<T> a{.dx = bench->out<T, 2>("dx", {s.assignments(), s.in}),
                          .dy = bench->in<T, 2>("dy", {s.assignments(), s.out}),
                          .offsets = at.offsets,
                          .weight = packed_stack<T>(*bench, s.experts(), s.out, s.in),
                          .scale = product_scale(*bench, s.scaled)};
  bench->must_move(at.row, 0);  // dgrad does not gather
  const auto check = [a, s, at](Report& report) {
    const auto looked = sampled_assignments(s, at, a.scale);
    const auto dy = chosen_doubles(a.dy, looked.chosen);
    const auto weight = chosen_doubles(stacked_rows(a.weight.plain), looked.weight_rows);
    const auto want = looked.grouped.dgrad(dy, weight);
    const auto size = looked.grouped.dgrad(absolute(dy), absolute(weight));
    auto got = chosen_rows(a.dx.data, s.in, looked.chosen);
    report.near("dx", got.view(), want, product_rule<T>(double(s.out), want, size));
  };
  return {bench, [a, bench](Exec on) { grouped_linear_dgrad<T>(on, bench->located(a)); }, check,
          grouped_linear_dgrad_cost(a), grouped_workspace<T>(s)};
}

// All assignments of some experts.
std::vector<int64_t> assignments_of(const Indices& at, const std::vector<int64_t>& experts) {
  std::vector<int64_t> all;
  for (const int64_t e : experts) {
    for (int64_t a = at.offsets[e]; a < at.offsets[e + 1]; ++a) all.push_back(a);
  }
  return all;
}

// Infinities and NaN in the rows of one expert, which no other expert's sums may see.
template <typename T>
void spoil_rows(View<T, 2> dy, View<T, 2> x, const Shape& s, const Indices& at, int64_t expert) {
  for (int64_t i = at.offsets[expert]; i < at.offsets[expert + 1]; ++i) {
    for (int64_t o = 0; o < s.out; ++o) dy.at(i, o) = T(i % 2 == 0 ? INFINITY : NAN);
    if (s.rows == Rows::kGathered) continue;  // rows of x are those of other experts too
    for (int64_t c = 0; c < s.in; ++c) x.at(i, c) = T(i % 3 == 0 ? INFINITY : NAN);
  }
}

// Checks some rows of some experts' dweight, all but those of the expert whose rows are spoiled.
template <typename T>
OpInstance wgrad_instance(const Shape& s, GradientSum sum = GradientSum::kAdd,
                          int64_t spoiled = -1) {
  auto bench = std::make_shared<Workbench>();
  const Indices at = grouped_indices(*bench, s);
  const bool stores = sum == GradientSum::kStore;
  const View<T, 2> dy = bench->in<T, 2>("dy", {s.assignments(), s.out});
  const View<T, 2> x = bench->in<T, 2>("x", {s.x_rows(), s.in});
  if (spoiled >= 0) {
    spoil_rows(dy, x, s, at, spoiled);
    bench->commit();
  }
  const GroupedWgrad<T> a{
      .dweight = stores ? bench->out<float, 3>("dweight", {s.experts(), s.out, s.in})
                        : bench->acc<float, 3>("dweight", {s.experts(), s.out, s.in}),
      .dy = dy,
      .x = x,
      .row = at.row,
      .offsets = at.offsets,
      .scale = product_scale(*bench, s.scaled),
      .sum = sum};
  const auto outs = sample(s.out, double(s.assignments() * s.in));
  const double mean_load = double(s.assignments()) / double(s.experts());
  auto experts = sample(s.experts(), mean_load * double(int64_t(outs.size()) * s.in));
  std::erase(experts, spoiled);
  std::vector<int64_t> rows;  // rows of dweight (E * out, in)
  for (const int64_t e : experts) {
    for (const int64_t o : outs) rows.push_back(e * s.out + o);
  }
  const auto begin = stores ? std::vector<double>(rows.size() * size_t(s.in), 0.0)
                            : chosen_doubles(stacked_rows(a.dweight), rows);
  const auto check = [a, s, at, outs, experts, rows, begin](Report& report) {
    auto looked = looked_assignments(s, at, assignments_of(at, experts), experts, a.scale);
    ref::GroupedLinear<double>& grouped = looked.grouped;
    grouped.out = int64_t(outs.size());
    std::vector<double> dy;
    for (const int64_t assignment : looked.chosen) {
      for (const int64_t o : outs) dy.push_back(double(float(a.dy.at(assignment, o))));
    }
    const auto x = chosen_doubles(a.x, looked.x_rows);
    const auto want = added(grouped.wgrad(dy, x), begin);
    const auto size = added(grouped.wgrad(absolute(dy), absolute(x)), absolute(begin));
    auto got = chosen_rows(a.dweight.data, s.in, rows);
    const double most = *std::max_element(s.loads.begin(), s.loads.end());
    const auto sums = product_rule<float>(most, want, size);
    report.near("dweight", got.view(), want,
                [&](int64_t i) { return sums(i) + tol::addition_in_memory(); });
  };
  return {bench, [a, bench](Exec on) { grouped_linear_wgrad<T>(on, bench->located(a)); }, check,
          grouped_linear_wgrad_cost(a), grouped_workspace<T>(s)};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const Shape s{"", {2, 0, 3}, 4, 5, Rows::kInOrder};
  Indices at = grouped_indices(*bench, s);
  at.rows = {2, 0, 1, 2, 1};
  auto grouped = grouped_reference(s, at, {});
  grouped.scale = 0.7;
  const auto x = Workbench::doubles(bench->in<float, 2>("x", {3, 5}));
  const auto weight = Workbench::doubles(bench->in<float, 3>("w", {3, 4, 5}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {5, 4}));
  const auto check = [=](Report& report) {
    const ref::GroupedLinear<ref::Complex> complex{3, 4, 5, grouped.offsets, grouped.row, 0.7};
    const auto loss = [&](const ref::ComplexVector& x_, const ref::ComplexVector& w_) {
      const auto y = complex.forward(x_, w_);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const ref::ComplexVector xc(x.begin(), x.end()), wc(weight.begin(), weight.end());
    // dx is per gathered row; gathered copies of one row of x are summed.
    const auto gathered = grouped.dgrad(dy, weight);
    std::vector<double> dx(x.size(), 0.0);
    for (size_t i = 0; i < gathered.size(); ++i) {
      dx[size_t(grouped.row[i / 5]) * 5 + i % 5] += gathered[i];
    }
    const auto of_x = [&](const auto& z) { return loss(z, wc); };
    const auto of_w = [&](const auto& z) { return loss(xc, z); };
    report.below("dx by complex step", ref::complex_step_error(of_x, x, dx), 1e-13);
    report.below("dw by complex step", ref::complex_step_error(of_w, weight, grouped.wgrad(dy, x)),
                 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  using Loads = std::vector<int32_t>;
  const auto add = [&](const Shape& s) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + s.text();
    // Reuses the stages of the GPU's rings, in forward and dgrad.
    const bool wraps = std::is_same_v<T, bf16> && s.name == "long";
    // Only wgrad treats large experts differently; forward shows once that it counts so far.
    const bool hot = s.name == "hot", gathered = s.rows == Rows::kGathered;
    if (!hot || gathered) {
      cases.push_back({"grouped_linear_forward", "grouped_linear_forward" + suffix,
                       [s] { return forward_instance<T>(s); }});
      cases.back().race_checked_at_any_cost = wraps && gathered;
      cases.push_back({"grouped_linear_wgrad", "grouped_linear_wgrad" + suffix,
                       [s] { return wgrad_instance<T>(s); }});
    }
    if (hot ? !gathered : s.assignments() < 1000) {
      cases.push_back({"grouped_linear_wgrad", "grouped_linear_wgrad stored" + suffix,
                       [s] { return wgrad_instance<T>(s, GradientSum::kStore); }});
    }
    // Dgrad never gathers, and has the list of forward.
    if (hot || s.name == "many" || (gathered && s.name != "gate and up")) return;
    cases.push_back({"grouped_linear_dgrad", "grouped_linear_dgrad" + suffix,
                     [s] { return dgrad_instance<T>(s); }});
    cases.back().race_checked_at_any_cost = wraps;
  };
  for (const Shape& s : {
           Shape{"one row", Loads{0, 1, 0}, 1, 1, Rows::kInOrder},
           Shape{"odd", Loads{3, 0, 17, 1, 6}, 33, 67, Rows::kGathered},
           Shape{"odd", Loads{5, 12, 0, 200}, 100, 31, Rows::kInOrder},
           Shape{"one expert", Loads{0, 0, 301, 0}, 130, 64, Rows::kGathered},
           Shape{"many", Loads(300, 2), 16, 20, Rows::kGathered},
           Shape{"even", Loads(64, 32), 128, 256, Rows::kGathered},
           Shape{"gate and up", Loads{900, 1100, 1500, 596}, 768, 256, Rows::kGathered},
           Shape{"down", Loads{1024, 1024, 1024, 1024}, 256, 384, Rows::kInOrder},
           // Covers the GPU's tiles (64 rows per warpgroup, 128 per tile, 64 of k per stage): loads
           // around their edges, sums with more stages than the ring has (4, 5 or 6), one expert
           // with all rows, widths that are not multiples of a tile.
           Shape{"edges", Loads{0, 1, 63, 65, 129, 64, 0}, 264, 456, Rows::kInOrder},
           Shape{"edges", Loads{0, 1, 63, 65, 129, 64, 0}, 264, 456, Rows::kGathered},
           Shape{"one takes all", Loads{0, 420, 0, 0}, 136, 72, Rows::kInOrder},
           Shape{"one takes all", Loads{0, 420, 0, 0}, 136, 72, Rows::kGathered},
           Shape{"long", Loads{400, 0, 107}, 256, 320, Rows::kInOrder},
           Shape{"long", Loads{400, 0, 107}, 256, 320, Rows::kGathered},
           Shape{"deep", Loads{70, 0, 5}, 456, 120, Rows::kInOrder},
           // Experts so large that wgrad splits them into pieces, and one just below that size.
           Shape{"hot", Loads{3, 16385, 16384, 0, 33000}, 8, 24, Rows::kInOrder},
           Shape{"hot", Loads{3, 16385, 16384, 0, 33000}, 8, 24, Rows::kGathered},
           Shape{"no row", Loads{0, 0}, 32, 32, Rows::kInOrder},
       }) {
    add(s);
  }
  for (const Shape& s : {
           Shape{"odd", Loads{3, 0, 17, 1, 6}, 33, 67, Rows::kGathered, Scaled::kLeft},
           Shape{"odd", Loads{3, 0, 17, 1, 6}, 33, 67, Rows::kInOrder, Scaled::kBoth},
           Shape{"edges", Loads{0, 1, 63, 129}, 136, 72, Rows::kGathered, Scaled::kBoth},
           Shape{"edges", Loads{0, 1, 63, 129}, 136, 72, Rows::kInOrder, Scaled::kAll},
       }) {
    add(s);
  }
  if (std::is_same_v<T, bf16>) {  // more experts than a block that lists the parts has threads
    add({"many", Loads(1100, 1), 16, 24, Rows::kInOrder});
    // As many as the largest preset has, most of them without a row: a few rows for every 16th.
    Loads few(4096, 0);
    for (size_t e = 15; e < few.size(); e += 16) few[e] = int32_t(1 + e / 16 % 7);
    add({"most without a row", few, 16, 24, Rows::kInOrder});
  }
  // Loads beside whole tiles and slabs of steps on the CPU's matrix unit.
  for (const Rows rows : {Rows::kInOrder, Rows::kGathered}) {
    const Shape s{"slabs", Loads{511, 0, 1, 31, 33, 513}, 96, 64, rows};
    for (const GradientSum sum : {GradientSum::kStore, GradientSum::kAdd}) {
      cases.push_back({"grouped_linear_wgrad",
                       std::string("grouped_linear_wgrad ") +
                           (sum == GradientSum::kStore ? "stored " : "") + dtype_name<T>() +
                           s.text(),
                       [s, sum] { return wgrad_instance<T>(s, sum); }});
    }
  }
  const Loads even(64, 32);
  add({"even", even, 128, 256, Rows::kGathered, Scaled::kBoth});
  for (const Rows rows : {Rows::kInOrder, Rows::kGathered}) {
    const Shape s{"one not finite", Loads{70, 37, 21, 50}, 136, 72, rows};
    cases.push_back({"grouped_linear_wgrad",
                     std::string("grouped_linear_wgrad ") + dtype_name<T>() + s.text(),
                     [s] { return wgrad_instance<T>(s, GradientSum::kAdd, 1); }});
  }
}

// The speedrun models with 64 and 256 experts: gate and up gather the tokens, down has its rows in
// order.
void add_large_cases(std::vector<OpCase>& cases) {
  const int64_t tokens = 16384, k = 6, hidden = 768, width = 384;
  for (const int64_t experts : {64, 256}) {
    const auto loads = uneven_loads(experts, tokens * k);
    const Shape gate_up{"gate and up", loads, 2 * width, hidden, Rows::kGathered, Scaled::kNo, k};
    const Shape down{"down", loads, hidden, width, Rows::kInOrder};
    std::vector<Shape> shapes{gate_up, down};
    if (experts == 64) {
      for (Shape s : {gate_up, down}) {
        s.scaled = Scaled::kBoth;
        shapes.push_back(s);
      }
    }
    for (const Shape& s : shapes) {
      const std::string suffix = " bf16" + s.text();
      cases.push_back(large("grouped_linear_forward", "grouped_linear_forward" + suffix,
                            [s] { return forward_instance<bf16>(s); }));
      cases.push_back(large("grouped_linear_dgrad", "grouped_linear_dgrad" + suffix,
                            [s] { return dgrad_instance<bf16>(s); }));
      cases.push_back(large("grouped_linear_wgrad", "grouped_linear_wgrad" + suffix,
                            [s] { return wgrad_instance<bf16>(s); }));
    }
  }
}

}  // namespace

std::vector<OpCase> grouped_linear_cases() {
  std::vector<OpCase> cases{
      {"grouped_linear_reference", "grouped_linear_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  // The scale must be applied to every piece of an expert.
  const Shape hot{"hot", {3, 16385}, 8, 8, Rows::kInOrder, Scaled::kBoth};
  cases.push_back({"grouped_linear_wgrad", "grouped_linear_wgrad bf16" + hot.text(),
                   [hot] { return wgrad_instance<bf16>(hot); }});
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
