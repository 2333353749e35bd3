#include "ops/grouped_swiglu.h"
#include "tests/ops/grouped_case.h"
#include "tests/ref/swiglu.h"

namespace assay {

namespace {

// s.out is 2 F.
template <typename T>
OpInstance forward_instance(const GroupedShape& s) {
  auto bench = std::make_shared<Workbench>();
  const GroupedIndices at = grouped_indices(*bench, s);
  const int64_t width = s.out / 2;
  GroupedSwigluForward<T> a{.h = bench->out<T, 2>("h", {s.assignments(), width}),
                            .gate_up = bench->out<T, 2>("gate_up", {s.assignments(), s.out}),
                            .x = bench->in<T, 2>("x", {s.x_rows(), s.in}, normal(0.2)),
                            .row = at.row,
                            .offsets = at.offsets,
                            .weight = packed_stack<T>(*bench, s.experts(), s.out, s.in),
                            .scale = product_scale(*bench, s.scaled)};
  if (asks_amax(s)) a.amax = amax_word(*bench);
  const auto check = [a, s, at, width](Report& report) {
    check_amax(report, a.amax, a.h);
    const auto looked = sampled_assignments(s, at, a.scale);
    const auto& chosen = looked.chosen;
    const auto x = chosen_doubles(a.x, looked.x_rows);
    const auto weight = chosen_doubles(stacked_rows(a.weight.plain), looked.weight_rows);
    const auto want = looked.grouped.forward(x, weight);
    const auto size = looked.grouped.forward(absolute(x), absolute(weight));
    auto gate_up = chosen_rows(a.gate_up.data, s.out, chosen);
    report.near("gate_up", gate_up.view(), want, product_rule<T>(double(s.in), want, size));
    // h is compared with the SwiGLU of the stored gate_up, which backward uses.
    const auto want_h = ref::Swiglu<double>{int64_t(chosen.size()), width}.forward(
        chosen_doubles(a.gate_up, chosen));
    auto h = chosen_rows(a.h.data, width, chosen);
    report.near("h", h.view(), want_h, [&](int64_t i) {
      const double v = want_h[size_t(i)];
      return tol::rounding<T>(v) + tol::elementary(3, v) + 0x1p-100;
    });
  };
  return {bench, [a, bench](Exec on) { grouped_swiglu_forward<T>(on, bench->located(a)); }, check,
          grouped_swiglu_forward_cost(a), grouped_workspace<T>(s)};
}

// s.in is F. One expert: without offsets.
template <typename T>
OpInstance dgrad_instance(const GroupedShape& s) {
  auto bench = std::make_shared<Workbench>();
  const GroupedIndices at = grouped_indices(*bench, s);
  const int64_t width = s.in;
  GroupedSwigluDgrad<T> a{
      .dgate_up = bench->out<T, 2>("dgate_up", {s.assignments(), 2 * width}),
      .dh = bench->tmp<T, 2>("dh", {s.assignments(), width}),
      .dy = bench->in<T, 2>("dy", {s.assignments(), s.out}),
      .gate_up = bench->in<T, 2>("gate_up", {s.assignments(), 2 * width}, normal(2.0)),
      .offsets = s.experts() > 1 ? at.offsets : View<const int32_t, 1>{},
      .weight = packed_stack<T>(*bench, s.experts(), s.out, width),
      .scale = product_scale(*bench, s.scaled)};
  if (s.experts() == 1) bench->must_move(at.offsets, 0);
  if (asks_amax(s)) a.amax = amax_word(*bench);
  const auto check = [a, s, at, width](Report& report) {
    check_amax(report, a.amax, a.dgate_up);
    const auto looked = sampled_assignments(s, at, a.scale);
    const auto& chosen = looked.chosen;
    const auto dy = chosen_doubles(a.dy, chosen);
    const auto weight = chosen_doubles(stacked_rows(a.weight.plain), looked.weight_rows);
    const auto dh = looked.grouped.dgrad(dy, weight);
    const auto size = looked.grouped.dgrad(absolute(dy), absolute(weight));
    const auto gate_up = chosen_doubles(a.gate_up, chosen);
    const ref::Swiglu<double> swiglu{int64_t(chosen.size()), width};
    const auto want = swiglu.backward(dh, gate_up);
    // The slopes, which are the factors of dh, and the terms of the gate's slope.
    const auto slope = swiglu.backward(std::vector<double>(dh.size(), 1.0), gate_up);
    auto got = chosen_rows(a.dgate_up.data, 2 * width, chosen);
    report.near("dgate_up", got.view(), want, [&](int64_t i) {
      const int64_t row = i / (2 * width), f = i % (2 * width) % width;
      const bool is_gate = i % (2 * width) < width;
      const double d = dh[size_t(row * width + f)];
      const double g = std::abs(gate_up[size_t(2 * row * width + f)]);
      const double u = std::abs(gate_up[size_t((2 * row + 1) * width + f)]);
      const double parts = is_gate ? std::abs(d) * u * (1 + g) : std::abs(want[size_t(i)]);
      const double of_dh =
          tol::rounding<T>(d) + tol::sum(double(s.out) + 1, size[size_t(row * width + f)]);
      return tol::rounding<T>(want[size_t(i)]) + tol::elementary(4, parts) +
             std::abs(slope[size_t(i)]) * of_dh + 0x1p-100;
    });
  };
  const auto workspace = [of_product = grouped_workspace<T>(s), s](Backend backend) {
    const bool dense = backend == Backend::kGpu && s.experts() == 1;
    return dense ? grouped_swiglu_dgrad_workspace_bytes(s.assignments()) : of_product(backend);
  };
  return {bench, [a, bench](Exec on) { grouped_swiglu_dgrad<T>(on, bench->located(a)); }, check,
          grouped_swiglu_dgrad_cost(a), workspace};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  using Loads = std::vector<int32_t>;
  const auto add = [&](const char* direction, const GroupedShape& s,
                       OpInstance (*make)(const GroupedShape&)) {
    const std::string op = std::string("grouped_swiglu_") + direction;
    cases.push_back({op, op + " " + dtype_name<T>() + s.text(), [s, make] { return make(s); }});
  };
  // F that takes tiles of 128, of 64 and of fewer columns; sums with more stages than the ring has.
  for (const GroupedShape& s : {
           GroupedShape{"one row", Loads{0, 1, 0}, 2, 1, RowOrder::kInOrder},
           GroupedShape{"odd", Loads{3, 0, 17, 1, 6}, 30, 67, RowOrder::kGathered},
           GroupedShape{"edges", Loads{0, 1, 63, 65, 129, 64, 0}, 304, 200, RowOrder::kGathered},
           GroupedShape{"edges", Loads{0, 1, 63, 65, 129, 64, 0}, 304, 200, RowOrder::kInOrder},
           GroupedShape{"long", Loads{70, 0, 9}, 80, 456, RowOrder::kInOrder},
           GroupedShape{"long", Loads{130, 0, 9}, 384, 328, RowOrder::kGathered},
           GroupedShape{"no row", Loads{0, 0}, 32, 32, RowOrder::kInOrder},
       }) {
    add("forward", s, forward_instance<T>);
  }
  for (const GroupedShape& s : {
           GroupedShape{"odd", Loads{3, 0, 17}, 30, 67, RowOrder::kGathered, Scaled::kRight},
           GroupedShape{"edges", Loads{0, 1, 63, 65}, 144, 72, RowOrder::kGathered, Scaled::kBoth},
       }) {
    add("forward", s, forward_instance<T>);
  }
  const Loads even(16, 128);  // large enough to time
  for (const Scaled scaled : {Scaled::kNo, Scaled::kBoth}) {
    add("forward", {"even", even, 512, 256, RowOrder::kGathered, scaled}, forward_instance<T>);
    add("dgrad", {"even", even, 256, 256, RowOrder::kInOrder, scaled}, dgrad_instance<T>);
  }
  for (const GroupedShape& s : {
           GroupedShape{"one row", Loads{0, 1, 0}, 1, 1, RowOrder::kInOrder},
           GroupedShape{"odd", Loads{3, 0, 17, 1, 6}, 67, 15, RowOrder::kInOrder},
           GroupedShape{"edges", Loads{0, 1, 63, 65, 129, 64, 0}, 200, 152, RowOrder::kInOrder},
           GroupedShape{"long", Loads{140, 0, 9}, 456, 72, RowOrder::kInOrder},
           GroupedShape{"dense", Loads{201}, 136, 152, RowOrder::kInOrder},
           GroupedShape{"dense", Loads{19}, 67, 15, RowOrder::kInOrder},
           GroupedShape{"long", Loads{70, 0, 9}, 392, 384, RowOrder::kInOrder},
           GroupedShape{"no row", Loads{0, 0}, 32, 32, RowOrder::kInOrder},
       }) {
    add("dgrad", s, dgrad_instance<T>);
  }
  for (const GroupedShape& s : {
           GroupedShape{"odd", Loads{3, 0, 17}, 67, 15, RowOrder::kInOrder, Scaled::kLeft},
           GroupedShape{"edges", Loads{0, 1, 63, 65}, 136, 152, RowOrder::kInOrder, Scaled::kAll},
       }) {
    add("dgrad", s, dgrad_instance<T>);
  }
}

// The speedrun models with 64 and 256 experts.
void add_large_cases(std::vector<OpCase>& cases) {
  const int64_t tokens = 16384, k = 6, hidden = 768, width = 384;
  for (const int64_t experts : {64, 256}) {
    const auto loads = uneven_loads(experts, tokens * k);
    const GroupedShape up{"gate and up",       loads,       2 * width, hidden,
                          RowOrder::kGathered, Scaled::kNo, k};
    const GroupedShape down{"down", loads, hidden, width, RowOrder::kInOrder};
    const auto add = [&](const GroupedShape& first, const GroupedShape& second) {
      cases.push_back(large("grouped_swiglu_forward", "grouped_swiglu_forward bf16" + first.text(),
                            [first] { return forward_instance<bf16>(first); }));
      cases.push_back(large("grouped_swiglu_dgrad", "grouped_swiglu_dgrad bf16" + second.text(),
                            [second] { return dgrad_instance<bf16>(second); }));
    };
    add(up, down);
    if (experts > 64) continue;
    GroupedShape scaled_up = up, scaled_down = down;
    scaled_up.scaled = scaled_down.scaled = Scaled::kBoth;
    add(scaled_up, scaled_down);
  }
}

}  // namespace

std::vector<OpCase> grouped_swiglu_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
