#include <cmath>
#include <limits>
#include <thread>

#include "ops/dequantise.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/scale.h"
#include "tests/ops/quantise_case.h"
#include "tests/ref/fake_quantise.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

constexpr uint32_t kSigns = 0b1001101001011100;
constexpr uint32_t kDraw = 9;  // step in the key of the draws

struct Shape {
  int64_t rows, columns;
  std::vector<int64_t> offsets = {};  // empty: one segment
  enum class Rows { kOwn, kGathered } source = Rows::kOwn;
  ColumnRotation rotation = ColumnRotation::kNone;
  enum class Copies { kBoth, kRow, kColumn } copies = Copies::kBoth;
  enum class Measures { kNone, kTaken } measures = Measures::kNone;
  Flips flips = Flips::kNotCounted;
  enum class Amax { kFound, kKnown } amax = Amax::kFound;
};
constexpr auto kRotated = ColumnRotation::kHadamard16;
constexpr auto kPlain = ColumnRotation::kNone;

FakeCopy fake_copy(Workbench& bench, FakeWay way, const QuantFormat& f, const Shape& s) {
  const std::string name = way == FakeWay::kRow ? "row" : "column";
  const bool flips = s.flips == Flips::kCounted;
  const auto y = flips ? bench.acc<bf16, 2>(name + " y", {s.rows, s.columns})
                       : bench.out<bf16, 2>(name + " y", {s.rows, s.columns});
  FakeCopy copy{.y = y, .flips = s.flips, .format = f, .key = {7, stream_id(name), 3}};
  if (flips) {
    const int64_t places =
        fake_quantise_scales(f.scale, way, s.rows, int64_t(s.offsets.size()) - 1, s.columns);
    if (places > 0) {
      copy.scales = bench.acc<bf16, 1>(name + " scales", {places}, {Fill::kZero});
    }
  }
  if (has_tensor_scale(f.scale)) {
    copy.tensor_scale = bench.out<float, 1>(name + " tensor scale", {2});
  }
  return copy;
}

template <typename X>
FakeQuantise<X> arguments(Workbench& bench, const QuantFormat& row, const QuantFormat& column,
                          const Shape& s, const View<X, 2>& x) {
  FakeQuantise<X> a{.x = x, .rotation = s.rotation, .signs = kSigns};
  if (s.copies != Shape::Copies::kColumn) a.row = fake_copy(bench, FakeWay::kRow, row, s);
  if (s.copies != Shape::Copies::kRow) a.column = fake_copy(bench, FakeWay::kColumn, column, s);
  if (has_tensor_scale(row.scale) || has_tensor_scale(column.scale))
    a.amax = bench.tmp<float, 1>("amax", {2});
  if (s.amax == Shape::Amax::kKnown) {
    const View<float, 1> known = bench.in<float, 1>("known amax", {1});
    known[0] = largest_of(floats(View<const X, 2>(x)));
    a.known_amax = known;
    if (s.rotation == kPlain) a.amax = {};  // no amax has to be computed
  }
  if (!s.offsets.empty()) {
    const auto offsets = bench.in<int32_t, 1>("offsets", {int64_t(s.offsets.size())});
    for (size_t i = 0; i < s.offsets.size(); ++i) offsets[int64_t(i)] = int32_t(s.offsets[i]);
    a.offsets = offsets;
  }
  if (s.source == Shape::Rows::kGathered) {
    const auto gather = bench.in<int32_t, 1>("gather", {s.rows});
    for (int64_t i = 0; i < s.rows; ++i) gather[i] = int32_t(i * 7 % x.dim[0]);
    a.gather = gather;
  }
  if (s.measures == Shape::Measures::kTaken) {
    a.measures = bench.acc<double, 1>("measures", {2 * kFakeMeasures}, {Fill::kZero});
    a.partial = bench.tmp<double, 2>(
        "partial", {fake_quantise_pieces(a.rows(), a.segments(), s.columns), 2 * kFakeMeasures});
  }
  if (row.rounding == Rounding::kStochastic || column.rounding == Rounding::kStochastic) {
    const auto draw = bench.in<uint32_t, 1>("draw", {1});
    draw[0] = kDraw;
    a.draw = draw;
  }
  bench.commit();
  return a;
}

// Compares bits, so that -0 and NaN count. The only NaN written is the quiet one without a sign.
void compare_bits(Report& report, const std::string& name, const View<bf16, 2>& got,
                  const std::vector<double>& want) {
  const View<const uint16_t, 2> bits{&got.data->bits, {got.dim[0], got.dim[1]}};
  std::vector<double> wanted;
  for (const double y : want) wanted.push_back(std::isnan(y) ? 0x7FC0 : bf16(float(y)).bits);
  report.equal(name + " bits", bits, wanted);
}

void compare_measures(Report& report, const std::string& name, const View<double, 1>& got,
                      const ref::FakeCopy& want) {
  report.equal(name + " blocks", View<const double, 1>{got.data + kFakeBlocks, {4}},
               {want.blocks, want.zero, want.low, want.high});
  const auto bits = [](double scale) { return double(std::bit_cast<uint32_t>(float(scale))); };
  const bool none = want.largest < 0;
  report.equal(
      name + " scales", View<const double, 1>{got.data + kFakeLargestScale, {2}},
      {none ? 0.0 : bits(want.largest) + 1, none ? 0.0 : 0xFFFFFFFF - bits(want.smallest)});
  const double n = double(want.y.size());
  report.equal(name + " counts", View<const double, 1>{got.data, {kFakeErrors}},
               {n, want.flushed, want.saturated});
  report.near(name + " sums", View<const double, 1>{got.data + kFakeErrors, {2}},
              {want.errors, want.squares}, [&](int64_t i) {
                return tol::sum_in_double(n + 8, i == 0 ? want.errors : want.squares);
              });
}

template <typename X>
void compare(Report& report, const FakeQuantise<X>& a, const Shape& s) {
  const int64_t columns = a.x.dim[1];
  std::vector<float> z;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t from = a.gather.empty() ? r : a.gather[r];
    for (int64_t c = 0; c < columns; ++c) z.push_back(float(a.x.at(from, c)));
  }
  const std::vector<int64_t> offsets =
      s.offsets.empty() ? std::vector<int64_t>{0, s.rows} : s.offsets;
  const auto compare_copy = [&](const std::string& name, const FakeCopy& got,
                                const std::vector<float>& values, ref::BlocksAlong along,
                                int64_t first_measure) {
    if (got.y.empty()) return;
    RandomKey key = got.key;
    key.step = kDraw;
    const ref::FakeCopy want =
        ref::fake_quantised(got.format, values, s.rows, columns, offsets, along, key);
    compare_bits(report, name, got.y, want.y);
    if (has_tensor_scale(got.format.scale) && std::isfinite(want.s)) {
      report.equal(name + " tensor scale", got.tensor_scale,
                   {double(1.0f / float(want.s)), want.s});
    }
    if (a.measures.empty()) return;
    compare_measures(report, name, {a.measures.data + first_measure, {kFakeMeasures}}, want);
  };
  compare_copy("row", a.row, z, ref::BlocksAlong::kColumns, 0);
  if (s.rotation == kRotated) z = ref::rotated_segments(z, columns, offsets, kSigns);
  compare_copy("column", a.column, z, ref::BlocksAlong::kRows, kFakeMeasures);
}

template <typename X>
OpInstance instance(const QuantFormat& row, const QuantFormat& column, const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const int64_t rows_of_x =
      s.source == Shape::Rows::kGathered ? std::max<int64_t>(1, s.rows / 3) : s.rows;
  const View<X, 2> x = uneven_matrix<X>(*bench, "x", rows_of_x, s.columns);
  const FakeQuantise<X> a = arguments<X>(*bench, row, column, s, x);
  const auto check = [=](Report& report) { compare(report, a, s); };
  return {bench, [a, bench](Exec on) { fake_quantise(on, bench->located(a)); }, check,
          fake_quantise_cost(a)};
}

// A matrix that changes a little after a first copy, which y and scales still hold. If `bad` is not
// 0, one value of the new matrix is `bad`, and the op must mark it with the copy's site.
template <typename X>
OpInstance flips_instance(const QuantFormat& f, FakeWay way, float bad) {
  const bool of_row = way == FakeWay::kRow;
  const Shape s{.rows = 147,
                .columns = of_row ? 256 : 205,
                .offsets = {0, 0, 50, 147},
                .copies = of_row ? Shape::Copies::kRow : Shape::Copies::kColumn,
                .measures = Shape::Measures::kTaken,
                .flips = Flips::kCounted};
  auto bench = std::make_shared<Workbench>();
  const View<X, 2> x = uneven_matrix<X>(*bench, "x", s.rows, s.columns);
  FakeQuantise<X> a = arguments<X>(*bench, f, f, s, x);
  (of_row ? a.row : a.column).site = 21;
  const auto matrix = [=] {
    std::vector<float> z;
    for (int64_t i = 0; i < x.size(); ++i) z.push_back(float(x.data[i]));
    return z;
  };
  const auto reference = [=](const std::vector<float>& z) {
    const auto along = way == FakeWay::kRow ? ref::BlocksAlong::kColumns : ref::BlocksAlong::kRows;
    return ref::fake_quantised(f, z, s.rows, s.columns, s.offsets, along, {});
  };
  const ref::FakeCopy earlier = reference(matrix());
  FakeQuantise<X> first = a;
  first.measures = {};
  fake_quantise(Exec{.threads = 2}, first);
  a.not_finite = bench->acc<uint32_t, 1>("not finite", {1}, {Fill::kZero});
  for (int64_t i = 0; i < x.size(); i += 7) x.data[i] = X(float(x.data[i]) * 1.25f);
  for (int64_t i = 0; i < 16 * 16; ++i) x.at(60 + i / 16, i % 16) = X(0.0f);
  if (bad != 0) x.at(100, 200) = X(bad);
  bench->commit();
  const auto check = [=](Report& report) {
    const ref::FakeCopy want = reference(matrix());
    compare_bits(report, "y", (of_row ? a.row : a.column).y, want.y);
    double flips = 0;
    for (size_t i = 0; i < want.codes.size(); ++i) flips += want.codes[i] != earlier.codes[i];
    double* const measures = a.measures.data + (of_row ? 0 : kFakeMeasures);
    report.equal("marked", a.not_finite, {bad == 0 ? 0.0 : 42.0 + std::isnan(bad)});
    if (bad != 0) return;
    report.equal("flips", View<const double, 1>{measures + kFakeFlips, {1}}, {flips});
    report.below("no flips", flips > 100 ? 0 : 1, 0.5);
    compare_measures(report, "copy", {measures, {kFakeMeasures}}, want);
  };
  return {bench, [a, bench](Exec on) { fake_quantise(on, bench->located(a)); }, check,
          fake_quantise_cost(a)};
}

// x is all 0, or one of its values is not finite.
OpInstance special_instance(const QuantFormat& f, float bad) {
  const Shape s{.rows = 66, .columns = 128, .offsets = {0, 3, 3, 66}};
  auto bench = std::make_shared<Workbench>();
  const Fill fill = bad == 0 ? Fill{Fill::kZero} : normal();
  const View<bf16, 2> x = bench->in<bf16, 2>("x", {s.rows, s.columns}, fill);
  x.at(5, 100) = bf16(bad);
  x.at(7, 9) = bf16(-0.0f);
  const FakeQuantise<bf16> a = arguments<bf16>(*bench, f, f, s, x);
  const auto check = [=](Report& report) {
    compare(report, a, s);
    if (!has_tensor_scale(f.scale) || bad == 0) return;
    const bool is_nan = std::isnan(a.row.tensor_scale[0]) && std::isnan(a.column.tensor_scale[1]);
    report.below("S is not NaN", is_nan ? 0 : 1, 0.5);
  };
  return {bench, [a, bench](Exec on) { fake_quantise(on, bench->located(a)); }, check,
          fake_quantise_cost(a)};
}

// amax (M / amax) is, rounded, one place above M: no value of such a tensor is beyond M.
OpInstance scale_rounded_up_instance(const QuantFormat& f) {
  constexpr float kAmax = 1.2109375f;
  const Shape s{.rows = 32, .columns = 128, .measures = Shape::Measures::kTaken};
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 2> x = bench->in<bf16, 2>("x", {s.rows, s.columns}, {Fill::kZero});
  for (int64_t i = 0; i < x.size(); ++i) {
    x[i] = bf16(i % 3 == 0 ? kAmax : i % 3 == 1 ? -kAmax : 0.25f);
  }
  const FakeQuantise<bf16> a = arguments<bf16>(*bench, f, f, s, x);
  const auto check = [=](Report& report) {
    const float largest = largest_element(f.element);
    report.below("the scale is not rounded up", kAmax * (largest / kAmax) > largest ? 0 : 1, 0.5);
    for (const int64_t first : {int64_t{0}, int64_t{kFakeMeasures}}) {
      const View<const double, 1> got{a.measures.data + first + kFakeSaturated, {1}};
      report.equal("saturated", got, {0.0});
    }
    compare(report, a, s);
  };
  return {bench, [a, bench](Exec on) { fake_quantise(on, bench->located(a)); }, check,
          fake_quantise_cost(a)};
}

// x after quantise and dequantise on the CPU, back in the order of x.
template <typename X>
std::vector<double> quantised_and_back(const FakeCopy& like, const View<const X, 2>& x,
                                       ref::BlocksAlong along) {
  Workbench bench;
  const QuantFormat& f = like.format;
  const bool row = along == ref::BlocksAlong::kColumns;
  const int64_t lines = row ? x.dim[0] : x.dim[1];
  const int64_t k = row ? x.dim[1] : padded_length(f.scale, x.dim[0]);
  QuantisedCopy copy = copy_buffers(bench, "copy", f, lines, k, largest_of(floats(x)));
  copy.key = like.key;
  if (f.rounding == Rounding::kStochastic) copy.key.step = kDraw;
  Quantise<X> q{.x = x, .format = f};
  (row ? q.row : q.column) = copy;
  const Exec on{.threads = int(std::thread::hardware_concurrency())};
  quantise(on, q);
  const View<bf16, 2> y = bench.out<bf16, 2>("y", {lines, k});
  dequantise(on, Dequantise<bf16>{.y = y,
                                  .codes = copy.codes,
                                  .scales = copy.scales,
                                  .scale_codes = copy.scale_codes,
                                  .format = f});
  std::vector<double> values;
  for (int64_t r = 0; r < x.dim[0]; ++r) {
    for (int64_t c = 0; c < x.dim[1]; ++c) values.push_back(float(row ? y.at(r, c) : y.at(c, r)));
  }
  return values;
}

template <typename X>
OpInstance round_trip_instance(const QuantFormat& f, const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const View<X, 2> x = uneven_matrix<X>(*bench, "x", s.rows, s.columns);
  const FakeQuantise<X> a = arguments<X>(*bench, f, f, s, x);
  const auto check = [=](Report& report) {
    const auto compare_copy = [&](const char* name, const FakeCopy& got, ref::BlocksAlong along) {
      if (!got.y.empty()) compare_bits(report, name, got.y, quantised_and_back(got, a.x, along));
    };
    compare_copy("row", a.row, ref::BlocksAlong::kColumns);
    compare_copy("column", a.column, ref::BlocksAlong::kRows);
    if (!a.column.y.empty() && block_shape(f.scale).lines > 1 && f.rounding == Rounding::kNearest) {
      compare_copy("2-D blocks both ways", a.column, ref::BlocksAlong::kColumns);
    }
  };
  return {bench, [a, bench](Exec on) { fake_quantise(on, bench->located(a)); }, check,
          fake_quantise_cost(a)};
}

void add_round_trips(std::vector<OpCase>& cases) {
  static const char* const kElements[] = {"e4m3", "e5m2", "e2m1"};
  static const char* const kKinds[] = {"tensor", "1x128", "128x128", "1x32", "1x16", "16x16"};
  for (int element = 0; element < 3; ++element) {
    for (int kind = 0; kind < 6; ++kind) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        const QuantFormat f{ElementFormat(element), ScaleKind(kind), rounding};
        const char* how = rounding == Rounding::kStochastic ? " stochastic" : "";
        cases.push_back(
            {"fake_quantise",
             std::string("fake_quantise as quantise and dequantise, ") + kElements[element] + " " +
                 kKinds[kind] + how,
             [f] { return round_trip_instance<float>(f, {.rows = 139, .columns = 256}); }});
      }
    }
  }
}

template <typename X>
void add(std::vector<OpCase>& cases, const std::string& what, const QuantFormat& row,
         const QuantFormat& column, const Shape& s) {
  std::string name = "fake_quantise " + what + " " + dtype_name<X>();
  if (s.rotation == kRotated) name += " rotated";
  if (s.source == Shape::Rows::kGathered) name += " gathered";
  name += " A=" + std::to_string(s.rows) + " C=" + std::to_string(s.columns) +
          " S=" + std::to_string(s.offsets.empty() ? 1 : s.offsets.size() - 1);
  cases.push_back({"fake_quantise", name, [=] { return instance<X>(row, column, s); }});
}

void add_flips(std::vector<OpCase>& cases) {
  for (const NamedFormat& n : kRecipeFormats) {
    for (const FakeWay way : {FakeWay::kRow, FakeWay::kColumn}) {
      const QuantFormat f = n.format;
      const std::string name = "fake_quantise flips of " + std::string(n.name) +
                               (way == FakeWay::kRow ? " row" : " column");
      cases.push_back({"fake_quantise", name, [=] { return flips_instance<float>(f, way, 0); }});
      for (const float bad : {INFINITY, NAN}) {
        cases.push_back({"fake_quantise", name + " with " + std::to_string(bad),
                         [=] { return flips_instance<bf16>(f, way, bad); }});
      }
    }
  }
}

// Offsets of 1024 segments: most are empty, the others have 1 to 20 rows.
std::vector<int64_t> scattered_rows(int64_t rows) {
  std::vector<int64_t> offsets{0};
  for (int64_t s = 0; s < 1024; ++s) {
    const int64_t more = s % 29 == 5 ? s % 20 + 1 : 0;
    offsets.push_back(s == 1023 ? rows : std::min(rows, offsets.back() + more));
  }
  return offsets;
}

}  // namespace

std::vector<OpCase> fake_quantise_cases() {
  std::vector<OpCase> cases;
  using Copies = Shape::Copies;
  constexpr auto kGathered = Shape::Rows::kGathered;
  constexpr auto kTaken = Shape::Measures::kTaken;
  for (const NamedFormat& n : kRecipeFormats) {
    const QuantFormat f = n.format;
    QuantFormat drawn = f;
    drawn.rounding = Rounding::kStochastic;
    const std::string name = n.name;
    add<bf16>(cases, name, f, f, {.rows = 0, .columns = 128, .offsets = {0, 0, 0}});
    add<bf16>(cases, name, f, f, {.rows = 1, .columns = 128});
    add<bf16>(cases, name + " column", f, f,
              {.rows = 33, .columns = 77, .rotation = kRotated, .copies = Copies::kColumn});
    add<bf16>(cases, name + " measures", f, drawn,
              {.rows = 150,
               .columns = 256,
               .offsets = {0, 0, 1, 1, 50, 82, 150, 150},
               .source = kGathered,
               .rotation = kRotated,
               .measures = kTaken});
    add<float>(cases, name + " stochastic measures", drawn, drawn,
               {.rows = 147, .columns = 128, .offsets = {0, 0, 147, 147}, .measures = kTaken});
    if (has_tensor_scale(f.scale)) {
      for (const auto rotation : {kPlain, kRotated}) {
        add<bf16>(cases, name + " of a known amax", f, drawn,
                  {.rows = 147,
                   .columns = 128,
                   .offsets = {0, 0, 50, 147},
                   .rotation = rotation,
                   .measures = kTaken,
                   .amax = Shape::Amax::kKnown});
      }
    }
    if (f.scale == ScaleKind::kTensor) {
      cases.push_back({"fake_quantise", "fake_quantise " + name + " with a scale rounded up",
                       [f] { return scale_rounded_up_instance(f); }});
    }
    for (const float bad : {0.0f, INFINITY, NAN}) {
      cases.push_back({"fake_quantise", "fake_quantise " + name + " with " + std::to_string(bad),
                       [f, bad] { return special_instance(f, bad); }});
    }
  }
  const QuantFormat nvfp4{ElementFormat::kE2M1, ScaleKind::k1x16};
  const QuantFormat mxfp8{ElementFormat::kE4M3, ScaleKind::k1x32};
  add_flips(cases);
  QuantFormat powers{ElementFormat::kE4M3, ScaleKind::k1x128};
  powers.scale_rounding = ScaleRounding::kPowerOfTwo;
  QuantFormat drawn = nvfp4;
  drawn.rounding = Rounding::kStochastic;
  add<float>(cases, "nvfp4 and mxfp8", nvfp4, mxfp8, {.rows = 61, .columns = 160});
  add<float>(cases, "fp8 powers of two", powers, powers, {.rows = 150, .columns = 256});
  add<bf16>(cases, "mxfp8 and nvfp4 stochastic", mxfp8, drawn,
            {.rows = 400,
             .columns = 128,
             .offsets = scattered_rows(400),
             .source = kGathered,
             .rotation = kRotated,
             .measures = kTaken});
  add_round_trips(cases);
  for (const NamedFormat& n : kRecipeFormats) {
    if (!timed_at_large(n)) continue;
    const Shape s{.rows = 16384, .columns = 3072};
    cases.push_back(large("fake_quantise",
                          std::string("fake_quantise ") + n.name + " bf16 A=16384 C=3072",
                          [f = n.format, s] { return round_trip_instance<bf16>(f, s); }));
    Shape sampled = s;
    sampled.measures = kTaken;
    cases.push_back(large(
        "fake_quantise", std::string("fake_quantise ") + n.name + " bf16 A=16384 C=3072 sampled",
        [f = n.format, sampled] { return round_trip_instance<bf16>(f, sampled); }));
  }
  return cases;
}

std::vector<OpCase> large_fake_quantise_cases() {
  using Copies = Shape::Copies;
  std::vector<OpCase> cases;
  for (const NamedFormat& n : kRecipeFormats) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const Copies copies : {Copies::kRow, Copies::kColumn}) {
        QuantFormat f = n.format;
        f.rounding = rounding;
        const Shape s{.rows = 2048, .columns = 1536, .copies = copies};
        const char* how = rounding == Rounding::kStochastic ? " stochastic" : "";
        const char* which = copies == Copies::kRow ? " row" : " column";
        cases.push_back({"fake_quantise", std::string("fake_quantise ") + n.name + which + how,
                         [=] { return round_trip_instance<bf16>(f, s); }});
        if (rounding == Rounding::kStochastic) continue;
        Shape sampled = s;
        sampled.measures = Shape::Measures::kTaken;
        cases.push_back({"fake_quantise",
                         std::string("fake_quantise ") + n.name + which + " sampled",
                         [=] { return round_trip_instance<bf16>(f, sampled); }});
      }
    }
  }
  return cases;
}

}  // namespace assay
