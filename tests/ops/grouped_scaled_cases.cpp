#include "ops/grouped_scaled.h"
#include "tests/ops/coded_case.h"
#include "tests/ops/grouped_case.h"
#include "tests/ref/swiglu.h"

namespace assay {

namespace {

using Experts = CodedStack::Experts;
using Loads = std::vector<int32_t>;

struct Pair {
  const char* name;
  QuantFormat x, weight;
};
constexpr Pair kTensorPair{"e4m3", kE4M3, kE4M3};
constexpr Pair kGradientPair{"e5m2 e4m3", kE5M2, kE4M3};
constexpr Pair kBlockPair{"1x128 128x128", kLine, kSquare};

// name of the shape whose codes fill_for_promotion sets
constexpr const char* kPromotion = "promotion";

// shape.out is n, shape.in is k.
struct CodedShape {
  Pair pair;
  Experts along;
  GroupedShape shape;
};
std::string text(const CodedShape& s) {
  return std::string(" ") + s.pair.name +
         (s.along == Experts::kAlongK ? " column copy" : " row copy") + s.shape.text();
}

// Unit of each operand that makes gate and up about 1; with unit 1 the sums are near 2^17.
constexpr double kSmall = 0x1p-9;

struct Operands {
  GroupedIndices at;
  Coded x, weight;
  CodedStack stack;

  Operands(Workbench& bench, const CodedShape& s, double unit)
      : at(grouped_indices(bench, s.shape)),
        x(coded_matrix(bench, "x", s.pair.x, s.shape.x_rows(), s.shape.in, unit)),
        weight(s.along == Experts::kAlongLines
                   ? coded_matrix(bench, "weight", s.pair.weight, s.shape.experts() * s.shape.out,
                                  s.shape.in, unit)
                   : coded_matrix(bench, "weight", s.pair.weight, s.shape.out,
                                  s.shape.experts() * s.shape.in, unit)),
        stack{weight.matrix, s.shape.experts(), s.along} {}
};

// Rows of the stack (E n, k), for either layout.
std::vector<double> weight_rows(const Operands& of, const GroupedShape& s,
                                const std::vector<int64_t>& rows) {
  if (of.stack.along == Experts::kAlongLines) return of.weight.rows(rows);
  std::vector<double> values;
  for (const int64_t row : rows) {
    for (int64_t i = 0; i < s.in; ++i)
      values.push_back(of.weight.value(row % s.out, row / s.out * s.in + i));
  }
  return values;
}

// The expected products of some assignments, and the sums of their terms' magnitudes.
struct Wanted {
  LookedAssignments looked;
  std::vector<double> y, size;
};
Wanted wanted_products(const Operands& of, const GroupedShape& s) {
  Wanted w{.looked = sampled_assignments(s, of.at, {}), .y = {}, .size = {}};
  const auto x = of.x.rows(w.looked.x_rows);
  const auto weight = weight_rows(of, s, w.looked.weight_rows);
  w.y = w.looked.grouped.forward(x, weight);
  w.size = w.looked.grouped.forward(absolute(x), absolute(weight));
  return w;
}
double sum_rule(const GroupedShape& s, double size) {
  return tol::sum(double(s.in) + 1, size) + tol::short_accumulators(size);
}
void report_products(Report& report, const char* name, const View<bf16, 2>& got,
                     const GroupedShape& s, const Wanted& want) {
  auto chosen = chosen_rows(got.data, s.out, want.looked.chosen);
  report.near(name, chosen.view(), want.y, [&](int64_t i) {
    return tol::rounding<bf16>(want.y[size_t(i)]) + sum_rule(s, want.size[size_t(i)]);
  });
}

OpInstance linear_instance(const CodedShape& s) {
  auto bench = std::make_shared<Workbench>();
  const Operands of(*bench, s, 1);
  if (s.shape.name == kPromotion) fill_for_promotion(*bench, of.x.matrix, of.weight.matrix);
  const GroupedScaledLinear a{.y = bench->out<bf16, 2>("y", {s.shape.assignments(), s.shape.out}),
                              .x = of.x.matrix,
                              .offsets = of.at.offsets,
                              .weight = of.stack};
  const auto check = [a, s, of](Report& report) {
    const Wanted want = wanted_products(of, s.shape);
    report_products(report, "y", a.y, s.shape, want);
  };
  return {bench, [a, bench](Exec on) { grouped_scaled_linear(on, bench->located(a)); }, check,
          grouped_scaled_linear_cost(a), grouped_workspace<bf16>(s.shape)};
}

// n is 2 F.
OpInstance forward_instance(const CodedShape& s) {
  auto bench = std::make_shared<Workbench>();
  const Operands of(*bench, s, kSmall);
  const int64_t width = s.shape.out / 2, assignments = s.shape.assignments();
  GroupedScaledSwigluForward a{
      .h = bench->out<bf16, 2>("h", {assignments, width}),
      .gate_up = bench->out<bf16, 2>("gate_up", {assignments, s.shape.out}),
      .x = of.x.matrix,
      .row = of.at.row,
      .offsets = of.at.offsets,
      .weight = of.stack};
  if (asks_amax(s.shape)) a.amax = amax_word(*bench);
  const auto check = [a, s, of, width](Report& report) {
    check_amax(report, a.amax, a.h);
    const Wanted want = wanted_products(of, s.shape);
    const auto& chosen = want.looked.chosen;
    report_products(report, "gate_up", a.gate_up, s.shape, want);
    // h is compared with the SwiGLU of the stored gate_up.
    const auto want_h = ref::Swiglu<double>{int64_t(chosen.size()), width}.forward(
        chosen_doubles(a.gate_up, chosen));
    auto h = chosen_rows(a.h.data, width, chosen);
    report.near("h", h.view(), want_h, [&](int64_t i) {
      const double v = want_h[size_t(i)];
      return tol::rounding<bf16>(v) + tol::elementary(3, v) + 0x1p-100;
    });
  };
  return {bench, [a, bench](Exec on) { grouped_scaled_swiglu_forward(on, bench->located(a)); },
          check, grouped_scaled_swiglu_forward_cost(a), grouped_workspace<bf16>(s.shape)};
}

// n is F.
OpInstance dgrad_instance(const CodedShape& s) {
  auto bench = std::make_shared<Workbench>();
  const Operands of(*bench, s, kSmall);
  const int64_t width = s.shape.out, assignments = s.shape.assignments();
  GroupedScaledSwigluDgrad a{
      .dgate_up = bench->out<bf16, 2>("dgate_up", {assignments, 2 * width}),
      .dy = of.x.matrix,
      .gate_up = bench->in<bf16, 2>("gate_up", {assignments, 2 * width}, normal(2.0)),
      .offsets = of.at.offsets,
      .weight = of.stack};
  if (asks_amax(s.shape)) a.amax = amax_word(*bench);
  const auto check = [a, s, of, width](Report& report) {
    check_amax(report, a.amax, a.dgate_up);
    const Wanted want = wanted_products(of, s.shape);
    const auto& chosen = want.looked.chosen;
    const auto gate_up = chosen_doubles(a.gate_up, chosen);
    const ref::Swiglu<double> swiglu{int64_t(chosen.size()), width};
    const auto gradient = swiglu.backward(want.y, gate_up);
    const auto slope = swiglu.backward(std::vector<double>(want.y.size(), 1.0), gate_up);
    auto got = chosen_rows(a.dgate_up.data, 2 * width, chosen);
    report.near("dgate_up", got.view(), gradient, [&](int64_t i) {
      const int64_t row = i / (2 * width), f = i % (2 * width) % width;
      const auto dh = size_t(row * width + f);
      const double g = std::abs(gate_up[size_t(2 * row * width + f)]);
      const double u = std::abs(gate_up[size_t((2 * row + 1) * width + f)]);
      const bool is_gate = i % (2 * width) < width;
      const double parts =
          is_gate ? std::abs(want.y[dh]) * u * (1 + g) : std::abs(gradient[size_t(i)]);
      return tol::rounding<bf16>(gradient[size_t(i)]) + tol::elementary(4, parts) +
             std::abs(slope[size_t(i)]) * sum_rule(s.shape, want.size[dh]) + 0x1p-100;
    });
  };
  return {bench, [a, bench](Exec on) { grouped_scaled_swiglu_dgrad(on, bench->located(a)); }, check,
          grouped_scaled_swiglu_dgrad_cost(a), grouped_workspace<bf16>(s.shape)};
}

using Make = OpInstance (*)(const CodedShape&);
void add_case(std::vector<OpCase>& cases, const char* op, Make make, const CodedShape& s,
              CaseSize size = CaseSize::kUsual) {
  cases.push_back({op, op + text(s), [s, make] { return make(s); }, OpBody::kGpu, size,
                   /*capability=*/89});
}

constexpr const char* kLinear = "grouped_scaled_linear";
constexpr const char* kForward = "grouped_scaled_swiglu_forward";
constexpr const char* kDgrad = "grouped_scaled_swiglu_dgrad";

// The speedrun model with 64 experts: gate and up forward, down forward, both dgrads.
void add_large_cases(std::vector<OpCase>& cases) {
  const int64_t tokens = 16384, top_k = 6, hidden = 768, width = 384;
  const Loads loads = uneven_loads(64, tokens * top_k);
  const auto shape = [&](const char* name, int64_t n, int64_t k, RowOrder rows) {
    return GroupedShape{name, loads, n, k, rows, Scaled::kNo, top_k};
  };
  for (const Pair& pair : {kTensorPair, kBlockPair}) {
    const Pair& gradient = pair.x == kLine ? pair : kGradientPair;
    const auto add = [&](const char* op, Make make, const Pair& formats, Experts along,
                         const GroupedShape& s) {
      add_case(cases, op, make, {formats, along, s}, CaseSize::kLarge);
    };
    add(kForward, forward_instance, pair, Experts::kAlongLines,
        shape("gate and up", 2 * width, hidden, RowOrder::kGathered));
    add(kLinear, linear_instance, pair, Experts::kAlongLines,
        shape("down", hidden, width, RowOrder::kInOrder));
    add(kDgrad, dgrad_instance, gradient, Experts::kAlongK,
        shape("down", width, hidden, RowOrder::kInOrder));
    add(kLinear, linear_instance, gradient, Experts::kAlongK,
        shape("gate and up", hidden, 2 * width, RowOrder::kInOrder));
  }
}

}  // namespace

std::vector<OpCase> grouped_scaled_cases() {
  constexpr Experts kLines = Experts::kAlongLines, kK = Experts::kAlongK;
  constexpr RowOrder kInOrder = RowOrder::kInOrder, kGathered = RowOrder::kGathered;
  const Loads odd{3, 0, 17, 1, 6}, edges{0, 1, 63, 65, 129, 64, 0};
  std::vector<OpCase> cases;
  // k below a stage, of a stage and a part, and of more stages than the ring has; n below and above
  // a tile.
  for (const CodedShape& s : {
           CodedShape{kTensorPair, kLines, {"one row", {0, 1, 0}, 16, 16, kInOrder}},
           CodedShape{kTensorPair, kK, {"odd", odd, 48, 144, kInOrder}},
           CodedShape{kGradientPair, kK, {"edges", edges, 208, 272, kInOrder}},
           CodedShape{kGradientPair, kLines, {"odd", odd, 80, 32, kInOrder}},
           CodedShape{kBlockPair, kLines, {"edges", edges, 256, 384, kInOrder}},
           CodedShape{kBlockPair, kK, {"odd", odd, 384, 256, kInOrder}},
           CodedShape{kBlockPair, kK, {"long", {130, 0, 9}, 128, 1024, kInOrder}},
           CodedShape{kTensorPair, kLines, {"no row", {0, 0}, 32, 32, kInOrder}},
           CodedShape{kTensorPair, kLines, {kPromotion, {5, 0, 3}, 128, 1024, kInOrder}},
           CodedShape{kBlockPair, kK, {"few", {2, 0, 1}, 128, 256, kInOrder}},
       }) {
    add_case(cases, kLinear, linear_instance, s);
  }
  for (const CodedShape& s : {
           CodedShape{kTensorPair, kLines, {"odd", odd, 96, 80, kGathered}},
           CodedShape{kTensorPair, kLines, {"edges", edges, 304 * 2, 144, kGathered}},
           CodedShape{kGradientPair, kLines, {"odd", odd, 96, 80, kGathered}},
           CodedShape{kBlockPair, kLines, {"edges", edges, 256, 384, kGathered}},
           CodedShape{kBlockPair, kLines, {"long", {130, 0, 9}, 256, 1024, kGathered}},
           CodedShape{kBlockPair, kLines, {"few", {2, 0, 1}, 256, 128, kGathered}},
       }) {
    add_case(cases, kForward, forward_instance, s);
  }
  for (const CodedShape& s : {
           CodedShape{kTensorPair, kK, {"odd", odd, 80, 144, kInOrder}},
           CodedShape{kGradientPair, kK, {"edges", edges, 208, 272, kInOrder}},
           CodedShape{kBlockPair, kK, {"edges", edges, 256, 384, kInOrder}},
           CodedShape{kBlockPair, kK, {"long", {130, 0, 9}, 128, 1024, kInOrder}},
           CodedShape{kBlockPair, kK, {"few", {2, 0, 1}, 128, 128, kInOrder}},
       }) {
    add_case(cases, kDgrad, dgrad_instance, s);
  }
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
