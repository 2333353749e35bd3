#include "ops/dequantise.h"
#include "ops/linear.h"
#include "ops/quantise/scale.h"
#include "tests/ops/coded_case.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/quantise_case.h"
#include "tests/ref/quantise.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

// Random codes except NaN, and random scales: the product is exact except with fp32 scales.
template <typename T>
OpInstance instance(const QuantFormat& f, int64_t lines, int64_t k) {
  auto bench = std::make_shared<Workbench>();
  const View<uint8_t, 2> codes = bench->in<uint8_t, 2>("codes", {lines, code_bytes(f.element, k)});
  RandomSequence random({5, stream_id("codes"), 0});
  for (int64_t i = 0; i < codes.size(); ++i) {
    const uint32_t byte = random.next() & 0xFF;
    const bool special = f.element != ElementFormat::kE2M1 && (byte & 0x7F) >= 0x7C;
    codes[i] = uint8_t(special ? byte & 0xF7 : byte);
  }
  const BlockShape shape = block_shape(f.scale);
  QuantFormat unlaid = f;
  unlaid.layout = ScaleLayout::kPlain;
  std::vector<double> plain;  // the scales as stored
  for (int64_t i = 0; i < scale_count(unlaid, lines, k); ++i) {
    const uint32_t word = random.next();
    plain.push_back(has_float_scales(f.scale)     ? double(float(std::ldexp(word, -40)))
                    : f.scale == ScaleKind::k1x32 ? 127 + word % 64 - 32
                                                  : word % 0x7F);
  }
  const std::vector<double> stored = laid_out(f, plain, lines, k);
  Dequantise<T> a{.y = bench->out<T, 2>("y", {lines, k}), .codes = codes, .format = f};
  if (has_float_scales(f.scale)) {
    const auto scales = bench->in<float, 1>("scales", {int64_t(stored.size())});
    for (size_t i = 0; i < stored.size(); ++i) scales[int64_t(i)] = float(stored[i]);
    a.scales = scales;
  }
  if (has_byte_scales(f.scale)) {
    const auto scales = bench->in<uint8_t, 1>("scales", {int64_t(stored.size())});
    for (size_t i = 0; i < stored.size(); ++i) scales[int64_t(i)] = uint8_t(stored[i]);
    a.scale_codes = scales;
  }
  bench->commit();
  const auto check = [=](Report& report) {
    const std::vector<double>& numbers = ref::format_numbers(f.element);
    const std::vector<double>& bytes = ref::format_numbers(ElementFormat::kE4M3);
    const int sign = f.element == ElementFormat::kE2M1 ? 8 : 128;
    std::vector<double> want;
    for (int64_t i = 0; i < lines * k; ++i) {
      const int code =
          f.element == ElementFormat::kE2M1 ? codes[i / 2] >> (i % 2 * 4) & 15 : codes[i];
      const double number = numbers.at(size_t(code % sign)) * (code >= sign ? -1 : 1);
      double scale = 1;
      if (f.scale != ScaleKind::kTensor) {
        const int64_t blocks = ceil_div(k, shape.columns);
        scale = plain[size_t(i / k / shape.lines * blocks + i % k / shape.columns)];
        if (f.scale == ScaleKind::k1x32) scale = std::exp2(scale - 127);
        if (has_tensor_scale(f.scale)) scale = bytes.at(size_t(scale));
      }
      want.push_back(number * scale);
    }
    const bool rounds = has_float_scales(f.scale);
    report.near("y", a.y, want, [&](int64_t i) {
      return rounds ? tol::rounding<T>(want[size_t(i)]) : tol::exact();
    });
  };
  return {bench, [a, bench](Exec on) { dequantise(on, bench->located(a)); }, check,
          dequantise_cost(a)};
}

// Random codes and scales of a large matrix, some lines of which are checked.
OpInstance large_instance(const QuantFormat& f, int64_t lines, int64_t k) {
  auto bench = std::make_shared<Workbench>();
  Coded coded = coded_matrix(*bench, "matrix", f, lines, k);
  coded.tensor = 1;  // its scale belongs to the product
  bench->must_move(coded.matrix.tensor_scale, 0);
  const Dequantise<bf16> a{.y = bench->out<bf16, 2>("y", {lines, k}),
                           .codes = coded.matrix.codes,
                           .scales = coded.matrix.scales,
                           .scale_codes = coded.matrix.scale_codes,
                           .format = f};
  const auto check = [=](Report& report) {
    const auto looked = wide_sample(lines, 10.0 * double(k));
    const auto want = coded.rows(looked);
    auto got = chosen_rows(a.y.data, k, looked);
    const bool rounds = has_float_scales(f.scale);
    report.near("y", got.view(), want, [&](int64_t i) {
      return rounds ? tol::rounding<bf16>(want[size_t(i)]) : tol::exact();
    });
  };
  return {bench, [a, bench](Exec on) { dequantise(on, bench->located(a)); }, check,
          dequantise_cost(a)};
}

// The relative RMS error of quantising and dequantising normal numbers, against the format's known
// error (docs/studies/precision.md). The tolerance of 1% is far above the spread over half a
// million numbers.
OpInstance error_instance(const QuantFormat& f, double percent) {
  constexpr int64_t kRows = 512, kColumns = 1024;
  auto bench = std::make_shared<Workbench>();
  Quantise<float> q{.x = bench->in<float, 2>("x", {kRows, kColumns}), .format = f};
  q.row = copy_buffers(*bench, "row", f, kRows, kColumns, largest_of(floats(q.x)));
  const Dequantise<float> d{.y = bench->out<float, 2>("y", {kRows, kColumns}),
                            .codes = q.row.codes,
                            .scale_codes = q.row.scale_codes,
                            .format = f};
  const auto run = [=](Exec on) {
    quantise(on, bench->located(q));
    dequantise(on, bench->located(d));
  };
  const auto check = [=](Report& report) {
    const double s = has_tensor_scale(f.scale) ? double(q.row.tensor_scale[1]) : 1.0;
    double error = 0, size = 0;
    for (int64_t i = 0; i < d.y.size(); ++i) {
      const double x = double(q.x[i]), difference = double(d.y[i]) / s - x;
      error += difference * difference;
      size += x * x;
    }
    report.below("relative RMS error / what it should be - 1",
                 std::abs(100 * std::sqrt(error / size) / percent - 1), 0.01);
  };
  // Dequantise alone reads what quantise wrote.
  bench->must_move(q.x, 0);
  bench->must_move(q.row.tensor_scale, 0);
  bench->must_move(q.row.amax, 0);
  const OpInstance::Alone alone{[=](Exec on) { dequantise(on, bench->located(d)); },
                                dequantise_cost(d)};
  return {bench, run, check, quantise_cost(q) + dequantise_cost(d), {}, alone};
}

// y = x W^T of NVFP4 operands, decoded to bf16 and multiplied as bf16. Products are exact, so y
// equals the exact sum within the rule of sums. The tensors' scales are applied in the epilogue.
OpInstance product_instance(int64_t rows, int64_t out, int64_t in) {
  auto bench = std::make_shared<Workbench>();
  const QuantFormat fx{ElementFormat::kE2M1, ScaleKind::k1x16};
  const QuantFormat fw{ElementFormat::kE2M1, ScaleKind::k16x16};
  Quantise<bf16> qx{.x = uneven_matrix<bf16>(*bench, "x", rows, in), .format = fx};
  Quantise<bf16> qw{.x = uneven_matrix<bf16>(*bench, "weight", out, in), .format = fw};
  qx.row = copy_buffers(*bench, "x", fx, rows, in, largest_of(floats(qx.x)));
  qw.row = copy_buffers(*bench, "weight", fw, out, in, largest_of(floats(qw.x)));
  const auto decoded = [&](const char* name, const Quantise<bf16>& q) {
    return Dequantise<bf16>{.y = bench->out<bf16, 2>(name, {q.x.dim[0], in}),
                            .codes = q.row.codes,
                            .scale_codes = q.row.scale_codes,
                            .format = q.format};
  };
  const Dequantise<bf16> dx = decoded("decoded x", qx), dw = decoded("decoded weight", qw);
  const auto packed = bench->tmp<std::byte, 1>("packed", {weight_pack_bytes<bf16>(out, in)});
  const LinearForward<bf16, float> product{
      .y = bench->out<float, 2>("y", {rows, out}), .x = dx.y, .weight = {dw.y, packed}};
  const auto run = [=](Exec on) {
    quantise(on, bench->located(qx));
    quantise(on, bench->located(qw));
    dequantise(on, bench->located(dx));
    dequantise(on, bench->located(dw));
    if (!on.gpu) {
      weight_pack<bf16>(on, bench->located(WeightPack<bf16>{.packed = packed, .plain = dw.y}));
    }
    linear_forward<bf16, float>(on, bench->located(product));
  };
  const auto check = [=](Report& report) {
    const auto values = [&](const Quantise<bf16>& q) {
      const std::vector<float> x = floats(q.x);
      return ref::quantised(q.format, x, q.x.dim[0], in, largest_of(x), q.row.key).values;
    };
    const std::vector<double> x = values(qx), w = values(qw);
    std::vector<double> want(size_t(rows * out), 0), size(want.size(), 0);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t r = i / size_t(out) * size_t(in), o = i % size_t(out) * size_t(in);
      for (size_t k = 0; k < size_t(in); ++k) {  // at most 12 bits per product, so this is exact
        want[i] += x[r + k] * w[o + k];
        size[i] += std::abs(x[r + k] * w[o + k]);
      }
    }
    report.equal("decoded x", dx.y, x);
    report.equal("decoded weight", dw.y, w);
    report.near("y", product.y, want,
                [&](int64_t i) { return tol::sum(double(in), size[size_t(i)]); });
  };
  const auto workspace = [=](Backend backend) {
    return linear_workspace_bytes<bf16>(backend, rows, in);
  };
  return {bench, run, check, linear_forward_cost(product), workspace, OpInstance::Alone{}};
}

}  // namespace

std::vector<OpCase> dequantise_cases() {
  std::vector<OpCase> cases;
  for (const NamedFormat& recipe : kRecipeFormats) {
    QuantFormat f = recipe.format;
    const std::string name = std::string("dequantise ") + recipe.name;
    const int64_t block = block_shape(f.scale).columns;
    cases.push_back({"dequantise", name + " bf16 lines=1 K=" + std::to_string(block),
                     [=] { return instance<bf16>(f, 1, block); }});
    cases.push_back({"dequantise", name + " bf16 lines=512 K=768",
                     [=] { return instance<bf16>(f, 512, 768); }});
    f.layout = ScaleLayout::kHardware;
    const int64_t k = 5 * block;
    cases.push_back({"dequantise", name + " float hardware lines=139 K=" + std::to_string(k),
                     [=] { return instance<float>(f, 139, k); }});
    if (!timed_at_large(recipe)) continue;
    cases.push_back(large("dequantise", name + " bf16 lines=16384 K=3072",
                          [f = recipe.format] { return large_instance(f, 16384, 3072); }));
  }
  const auto error = [&](const char* name, const QuantFormat& f, double percent) {
    cases.push_back({"dequantise", std::string("dequantise relative error of ") + name,
                     [=] { return error_instance(f, percent); }});
  };
  error("nvfp4", {ElementFormat::kE2M1, ScaleKind::k1x16}, 9.51);
  error("mxfp4", {ElementFormat::kE2M1, ScaleKind::k1x32}, 11.54);
  error("mxfp8", {ElementFormat::kE4M3, ScaleKind::k1x32}, 2.654);
  cases.push_back({"dequantise", "dequantise product of nvfp4 N=48 out=64 in=256",
                   [] { return product_instance(48, 64, 256); }});
  cases.push_back({"dequantise", "dequantise product of nvfp4 N=7 out=80 in=1024",
                   [] { return product_instance(7, 80, 1024); }});
  return cases;
}

}  // namespace assay
