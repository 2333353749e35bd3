#include "ops/quantise.h"
#include "ops/quantise/scale.h"
#include "tests/ops/quantise_case.h"
#include "tests/ops/quantise_vectors.h"
#include "tests/ref/quantise.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

constexpr uint32_t kSigns = 0b0110100111000101;

struct Shape {
  int64_t rows, columns;
  enum class Copies { kBoth, kRow, kColumn } copies = Copies::kBoth;
};

// Compares one copy with the reference. `x` is (lines, K).
void compare(Report& report, const std::string& name, const QuantFormat& f,
             const QuantisedCopy& got, const std::vector<float>& x, int64_t lines, int64_t k) {
  if (got.codes.empty()) return;
  const ref::QuantisedMatrix want = ref::quantised(f, x, lines, k, largest_of(x), got.key);
  report.equal(name + " codes", got.codes, packed_codes(f.element, want.codes));
  const std::vector<double> scales = laid_out(f, want.scales, lines, k);
  if (has_float_scales(f.scale)) report.equal(name + " scales", got.scales, scales);
  if (has_byte_scales(f.scale)) report.equal(name + " scales", got.scale_codes, scales);
  if (has_tensor_scale(f.scale)) {
    report.equal(name + " tensor scale", got.tensor_scale, {double(1.0f / float(want.s)), want.s});
  }
}

template <typename T>
std::vector<float> column_input(const Quantise<T>& a) {
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t k = padded_length(a.format.scale, rows);
  if (a.rotation == ColumnRotation::kHadamard16) {
    return ref::rotated_columns(floats(a.x), rows, columns, a.signs, k);
  }
  std::vector<float> t(size_t(columns * k), 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) t[size_t(c * k + r)] = float(a.x.at(r, c));
  }
  return t;
}

template <typename T>
OpInstance instance(const QuantFormat& f, const Shape& s, ColumnRotation rotation) {
  auto bench = std::make_shared<Workbench>();
  const int64_t k = padded_length(f.scale, s.rows);
  Quantise<T> a{.x = uneven_matrix<T>(*bench, "x", s.rows, s.columns),
                .format = f,
                .rotation = rotation,
                .signs = kSigns};
  if (s.copies != Shape::Copies::kColumn) {
    a.row = copy_buffers(*bench, "row", f, s.rows, s.columns, largest_of(floats(a.x)));
  }
  if (s.copies != Shape::Copies::kRow) {
    a.column = copy_buffers(*bench, "column", f, s.columns, k, largest_of(column_input(a)));
  }
  const auto check = [=](Report& report) {
    compare(report, "row", f, a.row, floats(a.x), s.rows, s.columns);
    compare(report, "column", f, a.column, column_input(a), s.columns, k);
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

// The lines of the row copy are rows of x, those of the column copy columns.
enum class Lines { kRows, kColumns };

// Compares 128 whole lines of a copy with the reference; for nearest rounding and plain layout.
template <typename T>
void compare_band(Report& report, const std::string& name, const Quantise<T>& a, Lines along,
                  int64_t first) {
  const int64_t lines = 128;
  const bool row = along == Lines::kRows;
  const QuantisedCopy& got = row ? a.row : a.column;
  const QuantFormat& f = a.format;
  const int64_t k = row ? a.x.dim[1] : a.x.dim[0];
  std::vector<float> band;
  for (int64_t l = first; l < first + lines; ++l) {
    for (int64_t i = 0; i < k; ++i) band.push_back(float(row ? a.x.at(l, i) : a.x.at(i, l)));
  }
  const float amax = has_tensor_scale(f.scale) ? got.amax[0] : 0;
  const auto want = ref::quantised(f, band, lines, k, amax, got.key);
  const auto part = [&](const auto& whole, int64_t begin, size_t count) {
    auto view = whole;
    return View<std::remove_reference_t<decltype(*view.data)>, 1>{view.data + begin,
                                                                  {int64_t(count)}};
  };
  const std::string at = name + " from " + std::to_string(first);
  const auto codes = packed_codes(f.element, want.codes);
  report.equal(at + " codes", part(got.codes, first * got.codes.dim[1], codes.size()), codes);
  const int64_t scale =
      first / block_shape(f.scale).lines * ceil_div(k, block_shape(f.scale).columns);
  if (has_float_scales(f.scale))
    report.equal(at + " scales", part(got.scales, scale, want.scales.size()), want.scales);
  if (has_byte_scales(f.scale))
    report.equal(at + " scales", part(got.scale_codes, scale, want.scales.size()), want.scales);
  if (has_tensor_scale(f.scale)) {
    report.equal(at + " tensor scale", got.tensor_scale, {double(1.0f / float(want.s)), want.s});
  }
}

// Both copies of an activation of a large micro-batch.
OpInstance large_instance(const QuantFormat& f, const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  Quantise<bf16> a{.x = uneven_matrix<bf16>(*bench, "x", s.rows, s.columns), .format = f};
  float amax = 0;
  for (int64_t i = 0; i < a.x.size(); ++i) amax = std::max(amax, std::abs(float(a.x[i])));
  a.row = copy_buffers(*bench, "row", f, s.rows, s.columns, amax);
  a.column = copy_buffers(*bench, "column", f, s.columns, padded_length(f.scale, s.rows), amax);
  const auto check = [=](Report& report) {
    for (const int64_t first : {int64_t{0}, s.rows / 256 * 128, s.rows - 128}) {
      compare_band(report, "row", a, Lines::kRows, first);
    }
    for (const int64_t first : {int64_t{0}, s.columns - 128}) {
      compare_band(report, "column", a, Lines::kColumns, first);
    }
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

uint64_t fnv(const void* data, size_t bytes) {
  return stream_id({static_cast<const char*>(data), bytes});
}

// Every bf16, against hashes from independent code (quantise_vectors.py).
OpInstance vector_instance(const QuantiseVector& v) {
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 2> x = bench->in<bf16, 2>("x", {256, 256});
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint32_t bits = v.mixed ? (i & ~1023u) | (i * 357 & 1023u) : i;
    x[i] = (bits & 0x7F80u) == 0x7F80u ? bf16(0.0f) : bf16::from_bits(uint16_t(bits));
  }
  bench->commit();
  Quantise<bf16> a{.x = x, .format = v.format};
  a.row = copy_buffers(*bench, "row", v.format, 256, 256, largest_of(floats(a.x)));
  const auto check = [=](Report& report) {
    const auto other = [](uint64_t got, uint64_t want) { return got == want ? 0.0 : 1.0; };
    report.below("hash of the codes differs",
                 other(fnv(a.row.codes.data, a.row.codes.bytes()), v.codes), 0.5);
    const uint64_t scales = has_float_scales(v.format.scale)
                                ? fnv(a.row.scales.data, a.row.scales.bytes())
                                : fnv(a.row.scale_codes.data, a.row.scale_codes.bytes());
    report.below("hash of the scales differs", other(scales, v.scales), 0.5);
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

// x is all 0: scales are 1 (0 for ue4m3 blocks), codes are 0, or -0 if the format keeps it.
OpInstance zero_instance(const QuantFormat& f) {
  auto bench = std::make_shared<Workbench>();
  Quantise<bf16> a{.x = bench->in<bf16, 2>("x", {32, 128}, {Fill::kZero}), .format = f};
  a.row = copy_buffers(*bench, "row", f, 32, 128, 0.0f);
  a.column = copy_buffers(*bench, "column", f, 128, padded_length(f.scale, 32), 0.0f);
  a.not_finite = bench->acc<uint32_t, 1>("not finite", {1}, {Fill::kZero});
  const auto check = [=](Report& report) {
    report.equal("marked", a.not_finite, {0.0});
    for (const QuantisedCopy& copy : {a.row, a.column}) {
      report.equal("codes", copy.codes, std::vector<double>(size_t(copy.codes.size()), 0.0));
      report.equal("scales", copy.scales, std::vector<double>(size_t(copy.scales.size()), 1.0));
      const double code = f.scale == ScaleKind::k1x32 ? 127 : 0;
      report.equal("scale codes", copy.scale_codes,
                   std::vector<double>(size_t(copy.scale_codes.size()), code));
      report.equal("tensor scale", copy.tensor_scale,
                   std::vector<double>(size_t(copy.tensor_scale.size()), 1.0));
    }
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

// One value is not finite: the scale that covers it is NaN, its codes are 0, and other blocks do
// not change.
OpInstance not_finite_instance(const QuantFormat& f, float bad) {
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 2> x = bench->in<bf16, 2>("x", {128, 256});
  x.at(5, 130) = bf16(bad);
  bench->commit();
  Quantise<bf16> a{.x = x, .format = f};
  a.row = copy_buffers(*bench, "row", f, 128, 256, std::abs(bad));
  a.row.site = 21;
  a.not_finite = bench->acc<uint32_t, 1>("not finite", {1}, {Fill::kZero});
  const auto check = [=](Report& report) {
    const BlockShape shape =
        f.scale == ScaleKind::kTensor ? BlockShape{128, 256} : block_shape(f.scale);
    const int everywhere = has_tensor_scale(f.scale);  // S is NaN, so all blocks are
    double wrong = 0;
    for (int64_t i = 0; i < a.row.codes.size(); ++i) {
      const int64_t line = i / a.row.codes.dim[1];
      const int64_t k = i % a.row.codes.dim[1] * 256 / a.row.codes.dim[1];
      const bool same_block =
          line / shape.lines == 5 / shape.lines && k / shape.columns == 130 / shape.columns;
      if (everywhere || same_block) wrong += a.row.codes[i] != 0;
    }
    double none = 0;
    for (int64_t i = 0; i < a.row.scales.size(); ++i) none += std::isnan(a.row.scales[i]);
    for (int64_t i = 0; i < a.row.scale_codes.size(); ++i) {
      none += a.row.scale_codes[i] == (f.scale == ScaleKind::k1x32 ? 0xFF : 0x7F);
    }
    const double scales = double(a.row.scales.size() + a.row.scale_codes.size());
    report.equal("marked", a.not_finite, {42.0 + std::isnan(bad)});
    report.below("codes that are not 0", wrong, 0.5);
    report.below("NaN scales", std::abs(none - (everywhere ? scales : 1)), 0.5);
    if (everywhere) {
      const bool is_nan = std::isnan(a.row.tensor_scale[0]) && std::isnan(a.row.tensor_scale[1]);
      report.below("S is not NaN", is_nan ? 0 : 1, 0.5);
    }
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

// The mean over n draws of one value equals the value within 6 standard deviations (step / 2 /
// sqrt(n) at most) plus 2^-17 steps, the resolution of 16-bit draws.
OpInstance unbiased_instance(ElementFormat element, double value, double step) {
  const int64_t n = 1 << 18;
  auto bench = std::make_shared<Workbench>();
  const QuantFormat f{element, ScaleKind::kTensor, Rounding::kStochastic};
  const std::vector<double>& numbers = ref::format_numbers(element);
  Quantise<float> a{.x = bench->in<float, 2>("x", {n / 512, 512}, normal(0, value)), .format = f};
  a.row = copy_buffers(*bench, "row", f, n / 512, 512, float(numbers.back()));  // S = 1
  const auto check = [=](Report& report) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int byte =
          element == ElementFormat::kE2M1 ? a.row.codes[i / 2] >> (i % 2 * 4) & 15 : a.row.codes[i];
      sum += numbers.at(size_t(byte)) - double(float(value));
    }
    report.below("mean of the roundings - value", std::abs(sum / double(n)),
                 6 * step / 2 / std::sqrt(double(n)) + 0x1p-17 * step);
  };
  return {bench, [a, bench](Exec on) { quantise(on, bench->located(a)); }, check, quantise_cost(a)};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases, const NamedFormat& named, const Shape& s,
               ColumnRotation rotation) {
  static const char* const kCopies[] = {"", " row", " column"};
  const QuantFormat f = named.format;
  std::string name = std::string("quantise ") + named.name + " " + dtype_name<T>();
  if (f.rounding == Rounding::kStochastic) name += " stochastic";
  if (f.layout == ScaleLayout::kHardware) name += " hardware";
  if (f.scale_rounding == ScaleRounding::kPowerOfTwo) name += " power of two";
  if (rotation == ColumnRotation::kHadamard16) name += " rotated";
  name += kCopies[int(s.copies)];
  name += " R=" + std::to_string(s.rows) + " C=" + std::to_string(s.columns);
  cases.push_back({"quantise", name, [=] { return instance<T>(f, s, rotation); }});
}

}  // namespace

std::vector<OpCase> quantise_cases() {
  using Copies = Shape::Copies;
  std::vector<OpCase> cases;
  for (const NamedFormat& recipe : kRecipeFormats) {
    NamedFormat n = recipe;
    const auto rotated = ColumnRotation::kHadamard16, plain = ColumnRotation::kNone;
    const int64_t block = block_shape(n.format.scale).columns;
    add_cases<bf16>(cases, n, {0, 128}, plain);
    add_cases<bf16>(cases, n, {1, 128}, plain);
    add_cases<float>(cases, n, {200, 384}, plain);
    add_cases<bf16>(cases, n, {33, 77, Copies::kColumn}, plain);
    add_cases<bf16>(cases, n, {37, 3 * block, Copies::kRow}, plain);
    add_cases<bf16>(cases, n, {200, 144, 144 % block == 0 ? Copies::kBoth : Copies::kColumn},
                    plain);
    add_cases<bf16>(cases, n, {512, 768}, plain);
    add_cases<bf16>(cases, n, {130, 256}, rotated);
    n.format.layout = ScaleLayout::kHardware;
    add_cases<bf16>(cases, n, {131, 640}, plain);
    n.format.rounding = Rounding::kStochastic;
    add_cases<float>(cases, n, {37, 128 + (block < 128 ? block : 0)}, rotated);
    n.format.layout = ScaleLayout::kPlain;
    add_cases<bf16>(cases, n, {512, 768}, rotated);
    add_cases<bf16>(cases, n, {100, 256}, plain);
    const QuantFormat f = recipe.format;
    const std::string name = std::string("quantise ") + recipe.name;
    cases.push_back({"quantise", name + " of zeros", [f] { return zero_instance(f); }});
    for (const float bad : {INFINITY, NAN}) {
      cases.push_back({"quantise", name + " of " + std::to_string(bad),
                       [f, bad] { return not_finite_instance(f, bad); }});
    }
  }
  add_cases<bf16>(cases,
                  {"fp8 block",
                   {.element = ElementFormat::kE4M3,
                    .scale = ScaleKind::k1x128,
                    .scale_rounding = ScaleRounding::kPowerOfTwo}},
                  {200, 384}, ColumnRotation::kNone);
  for (const NamedFormat& n : kRecipeFormats) {
    if (!timed_at_large(n)) continue;
    const Shape s{16384, 3072};
    cases.push_back(large("quantise", std::string("quantise ") + n.name + " bf16 R=16384 C=3072",
                          [f = n.format, s] { return large_instance(f, s); }));
  }
  for (size_t i = 0; i < std::size(kQuantiseVectors); ++i) {
    cases.push_back({"quantise", "quantise every bf16, vector " + std::to_string(i),
                     [i] { return vector_instance(kQuantiseVectors[i]); }});
  }
  const auto unbiased = [&](const char* name, ElementFormat element, double value, double step) {
    cases.push_back({"quantise", std::string("quantise is unbiased, ") + name,
                     [=] { return unbiased_instance(element, value, step); }});
  };
  unbiased("e4m3", ElementFormat::kE4M3, 17.3, 2);
  unbiased("e5m2", ElementFormat::kE5M2, 1.1, 0.25);
  unbiased("e2m1", ElementFormat::kE2M1, 4.2, 2);
  unbiased("e2m1 subnormal", ElementFormat::kE2M1, 0.1, 0.5);
  return cases;
}

}  // namespace assay
