// Native products, by the SIMT emulator's stand-in for the library and our own kernels for experts,
// against the same recipe with simulated products. In the emulator both sum in the same order, so
// any difference is a wrong copy, scale, layout or draw. (Experts' products add partial sums of 128
// along k, but float rounds hardly any sum of so few 8-bit codes, and none here.)
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/context.h"
#include "cuda/profile.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "models/linear/native_products.h"
#include "ops/fake_quantise.h"
#include "ops/scaled_linear.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"

namespace assay::test_native_products {

namespace {

constexpr int64_t kBatch = 3, kSequence = 32;

enum class Kind { kDense, kMoe };

Config native_config(Kind kind, const std::string& recipe, const std::string& products) {
  Config c = small_config(250);
  c.model.hidden = 128;
  c.model.kv_heads = 1;
  c.model.ffn = 128;
  if (kind == Kind::kMoe) {
    c.model.moe = six_experts();
    c.model.moe->expert_ffn = 128;
  }
  c.precision.recipe = recipe;
  c.precision.bf16_last_layers = 0;
  c.precision.products = *choice_named<ProductsMode>(products);
  return c;
}

struct Case {
  const char* recipe;
  int capability;
};
constexpr Case kCases[] = {
    {"fp8_tensor", 89}, {"fp8_tensor", 90}, {"fp8_block", 90}, {"mxfp8", 100}, {"nvfp4", 120}};

// All results of steps with and without sampling, a change of phase and evaluations.
// The kernels are those of a GPU of 9.0, or of 8.9; cuBLASLt's products are the same on all.
std::vector<std::byte> after_steps(const Config& config, int capability) {
  gpu::Context context = simt::make_context(std::min(capability, 90));
  ModelFixture f(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &context, 0, capability);
  std::vector<std::byte> known;
  const auto add = [&](const void* from, size_t bytes) {
    const auto* const raw = static_cast<const std::byte*>(from);
    known.insert(known.end(), raw, raw + bytes);
  };
  for (int i = 0; i < 3; ++i) {
    if (i == 2) f.model->enter(f.on, PrecisionPhase::kBf16);
    f.sampled = i == 1 ? MicroScale::Sample::kFormats : MicroScale::Sample::kNothing;
    const double loss = f.step(i);
    add(&loss, sizeof loss);
    // Evaluates twice, the second time with quantised weights already made; after an unsampled and
    // a sampled step.
    for (int again = 0; again < 2; ++again) {
      f.model->evaluate(f.on, f.micro(0, 1), f.nats);
      add(f.nats.data, size_t(kSequence) * sizeof(float));
    }
    if (i != 1) continue;
    for (const QuantisedOperandState& s : f.model->quantised_operands()) {
      add(s.measures.data, s.measures.bytes());
    }
  }
  const auto parameters = f.parameter_bytes();
  add(parameters.data(), parameters.size());
  return known;
}

enum class Passes { kTraining, kEvaluation };

// The profile of one micro-batch of one sequence, forward and backward, or of an evaluation.
std::vector<Profile::Entry> profiled(const Config& config, int capability,
                                     Passes passes = Passes::kTraining,
                                     int64_t sequence = kSequence) {
  gpu::Context context = simt::make_context();
  context.launches = gpu::Context::Launches::kWaiting;
  ModelFixture f(config, Recipe::kBf16, 1, sequence, 1, -1, &context, 0, capability);
  Profile profile;
  f.on.profile = &profile;
  if (passes == Passes::kTraining) {
    f.gradients();
  } else {
    f.model->evaluate(f.on, f.micro(0, 1), f.nats);
  }
  const auto entries = profile.entries();
  return {entries.begin(), entries.end()};
}
Profile::Entry entry_of(const char* op, const std::vector<Profile::Entry>& profile) {
  for (const Profile::Entry& e : profile) {
    if (std::strcmp(e.name, op) == 0) return e;
  }
  return {op, 0, 0, {}};
}
int64_t calls_of(const std::string& op, const std::vector<Profile::Entry>& profile) {
  return entry_of(op.c_str(), profile).calls;
}
int64_t calls_of(const char* op, const Config& config, int capability,
                 Passes passes = Passes::kTraining, int64_t sequence = kSequence) {
  return calls_of(op, profiled(config, capability, passes, sequence));
}

}  // namespace

// The first block of the mixture is a dense model's.
TEST_CASE("native products have the bits of simulated ones on the emulator") {
  for (const Case& c : kCases) {
    INFO(c.recipe);
    const auto decoded = after_steps(native_config(Kind::kMoe, c.recipe, "decoded"), c.capability);
    const auto native = after_steps(native_config(Kind::kMoe, c.recipe, "native"), c.capability);
    REQUIRE((native == decoded));
  }
  // The experts' products by mma.sync.
  const auto on_89 = [](const char* products) {
    return after_steps(native_config(Kind::kMoe, "fp8_tensor", products), 89);
  };
  REQUIRE((on_89("native") == on_89("decoded")));
}

// 24 calls: two blocks of qkv, out, gate_up and down with three products each. The second block of
// the mixture has routed and shared experts.
TEST_CASE("each product of a native recipe that has a kernel is native") {
  for (const Case& c : kCases) {
    INFO(c.recipe);
    const auto profile = [&](Kind kind, const char* products, int capability) {
      return profiled(native_config(kind, c.recipe, products), capability);
    };
    const bool fp8 = std::string(c.recipe).starts_with("fp8");
    const auto dense = profile(Kind::kDense, "native", c.capability);
    REQUIRE(calls_of("scaled_linear", dense) == 24);
    REQUIRE(calls_of("fake_quantise", dense) == 0);
    REQUIRE(calls_of("scaled_linear", profile(Kind::kDense, "decoded", c.capability)) == 0);
    REQUIRE(calls_of("scaled_linear", profile(Kind::kDense, "native", 90)) == (fp8 ? 24 : 0));
    // The experts' fprop and dgrad are native.
    const auto mixture = profile(Kind::kMoe, "native", c.capability);
    REQUIRE(calls_of("scaled_linear", mixture) == 24);
    REQUIRE(calls_of("grouped_scaled_swiglu_forward", mixture) == fp8);
    REQUIRE(calls_of("grouped_scaled_swiglu_dgrad", mixture) == fp8);
    REQUIRE(calls_of("grouped_scaled_linear", mixture) == 2 * fp8);
    REQUIRE(calls_of("grouped_scaled_linear", profile(Kind::kMoe, "decoded", c.capability)) == 0);
  }
}

// Counts the dense FFN of both blocks; in the mixture's second block, the shared expert.
TEST_CASE("an FFN whose products read block codes never writes its inner values in bf16") {
  for (const Case& c : kCases) {
    for (const Kind kind : {Kind::kDense, Kind::kMoe}) {
      INFO(c.recipe << (kind == Kind::kMoe ? ", mixture" : ", dense"));
      const auto profile = profiled(native_config(kind, c.recipe, "native"), c.capability);
      const bool codes = std::string(c.recipe) == "fp8_block";
      for (const std::string pass : {"forward", "backward"}) {
        REQUIRE(calls_of("swiglu_codes_" + pass, profile) == 2 * codes);
        REQUIRE(calls_of("swiglu_" + pass, profile) == 2 * !codes);
      }
    }
  }
  // If one product reads another format or bf16, the inner values are written in bf16.
  for (const char* other : {"dense_ffn.wgrad.gradient=bf16", "dense_ffn.fprop=fp8_e4m3"}) {
    Config c = native_config(Kind::kDense, "fp8_block", "native");
    c.precision.override_ = {other};
    INFO(other);
    const auto profile = profiled(c, 90);
    REQUIRE(calls_of("swiglu_codes_forward", profile) == 0);
    REQUIRE(calls_of("swiglu_codes_backward", profile) == 0);
    const auto native = after_steps(c, 90);
    c.precision.products = ProductsMode::kSimulated;
    REQUIRE((native == after_steps(c, 90)));
  }
}

TEST_CASE("evaluation uses simulated products") {
  const Config c = native_config(Kind::kMoe, "fp8_block", "native");
  REQUIRE(calls_of("scaled_linear", c, 90, Passes::kEvaluation) == 0);
  REQUIRE(calls_of("grouped_scaled_linear", c, 90, Passes::kEvaluation) == 0);
  REQUIRE(calls_of("linear_forward", c, 90, Passes::kEvaluation) > 0);
}

TEST_CASE("sequences whose length is not a multiple of 16 use simulated products") {
  const Config c = native_config(Kind::kMoe, "fp8_block", "native");
  REQUIRE(calls_of("scaled_linear", c, 90, Passes::kTraining, kSequence - 8) == 0);
  REQUIRE(calls_of("grouped_scaled_linear", c, 90, Passes::kTraining, kSequence - 8) == 0);
}

TEST_CASE("with a width that is not a multiple of 16 all products are simulated") {
  Config c = native_config(Kind::kDense, "fp8_tensor", "native");
  c.model.ffn = 136;
  // If quantised, these products would need multiples of 16 too.
  c.precision.override_ = {"dense_ffn.fprop=bf16", "dense_ffn.dgrad=bf16"};
  const PrecisionTable table = precision_table(c.precision, c.model);
  REQUIRE(native_problem(table, c.model, kSequence) == "width 136 is not a multiple of 16");
  REQUIRE(native_problem(table, c.model, 7) == "sequence length 7 is not a multiple of 16");
  REQUIRE(calls_of("scaled_linear", c, 90) == 0);
  c.model.ffn = 144;
  REQUIRE(native_problem(table, c.model, kSequence) == "");
  REQUIRE(calls_of("scaled_linear", c, 90) > 0);
}

TEST_CASE("products: auto is native where that was measured to be faster") {
  struct Row {
    const char* recipe;
    Backend backend;
    int capability;
    ProductsMode becomes;
  };
  for (const Kind kind : {Kind::kDense, Kind::kMoe}) {
    for (const Row& row :
         std::initializer_list<Row>{{"fp8_block", Backend::kGpu, 90, ProductsMode::kNative},
                                    {"fp8_tensor", Backend::kGpu, 90, ProductsMode::kNative},
                                    {"fp8_tensor", Backend::kGpu, 89, ProductsMode::kSimulated},
                                    {"fp8_tensor", Backend::kCpu, 90, ProductsMode::kSimulated},
                                    {"mxfp8", Backend::kGpu, 90, ProductsMode::kSimulated},
                                    {"mxfp8", Backend::kGpu, 100, ProductsMode::kSimulated},
                                    {"bf16", Backend::kGpu, 90, ProductsMode::kSimulated}}) {
      CAPTURE(row.recipe, row.capability);
      Config c = native_config(kind, row.recipe, "auto");
      c.run.sequence = kSequence;
      resolve_precision(c, row.backend, row.capability);
      REQUIRE(c.precision.products == row.becomes);
    }
  }
  const auto resolved = [](Config c) {
    resolve_precision(c, Backend::kGpu, 90);
    return c.precision.products;
  };
  Config c = native_config(Kind::kDense, "fp8_tensor", "auto");
  c.run.sequence = kSequence - 8;
  REQUIRE(resolved(c) == ProductsMode::kSimulated);
  c.run.sequence = kSequence;
  c.precision.products = ProductsMode::kSimulated;
  REQUIRE(resolved(c) == ProductsMode::kSimulated);
  // Only the roles that the model has count: a dense model's experts are native nowhere.
  c = native_config(Kind::kDense, "bf16", "auto");
  c.precision.override_ = {"experts.fprop=fp8_1x128"};
  c.run.sequence = kSequence;
  REQUIRE(resolved(c) == ProductsMode::kSimulated);
}

TEST_CASE("operands of 4 bits need multiples of 32, which are 16 bytes") {
  Config c = native_config(Kind::kDense, "nvfp4", "native");
  const auto problem = [&](int64_t sequence) {
    return native_problem(precision_table(c.precision, c.model), c.model, sequence);
  };
  REQUIRE(problem(kSequence) == "");
  REQUIRE(problem(48) == "sequence length 48 is not a multiple of 32");
  c.model.ffn = 144;
  REQUIRE(problem(kSequence) == "width 144 is not a multiple of 32");
  REQUIRE(calls_of("scaled_linear", c, 100) == 0);
  c.precision.recipe = "mxfp8";
  REQUIRE(problem(48) == "");
}

// The amax of a rotated operand is unknown, so it takes a pass. In nvfp4 both operands of wgrad are
// rotated; a gradient's two copies share one pass.
TEST_CASE("no operand is read again for an amax that its producing op records") {
  const auto passes = [](Kind kind, const char* recipe, int capability) {
    return calls_of("amax", native_config(kind, recipe, "native"), capability);
  };
  for (const Kind kind : {Kind::kDense, Kind::kMoe}) {
    REQUIRE(passes(kind, "fp8_tensor", 90) == 0);
    REQUIRE(passes(kind, "fp8_block", 90) == 0);
    REQUIRE(passes(kind, "nvfp4", 100) == 16);
    // Simulated products: as many operations as with block formats, which need no amax. To find one
    // takes an operation an element.
    const auto operations = [&](const char* recipe) {
      return entry_of("fake_quantise", profiled(native_config(kind, recipe, "decoded"), 90))
          .cost.flops;
    };
    REQUIRE(operations("fp8_tensor") > 0);
    REQUIRE(operations("fp8_tensor") == operations("fp8_block"));
  }
}

TEST_CASE("an overridden operand makes its product simulated; the others stay native") {
  Config c = native_config(Kind::kDense, "fp8_block", "native");
  c.precision.override_ = {"wgrad.gradient=bf16"};
  REQUIRE(calls_of("scaled_linear", c, 90) == 16);
  const auto native = after_steps(c, 90);
  c.precision.products = ProductsMode::kSimulated;
  REQUIRE((native == after_steps(c, 90)));
}

TEST_CASE("the first non-finite operand is named for native as for simulated products") {
  struct Row {
    const char* planted;  // the parameter in which the value is planted
    float value;
    const char *weight, *operand;  // the expected names
    const char* override_;
  };
  for (const Row& row :
       {Row{"blocks.1.attn.qkv", INFINITY, "blocks.1.attn.qkv", "fprop.weight", ""},
        Row{"blocks.0.ffn.down", NAN, "blocks.0.ffn.down", "fprop.weight", ""},
        Row{"embed.weight", NAN, "blocks.0.attn.qkv", "fprop.input", ""},
        Row{"blocks.1.attn.norm", NAN, "blocks.1.attn.qkv", "fprop.input", ""},
        Row{"head.weight", NAN, "blocks.1.ffn.down", "dgrad.gradient", ""},
        Row{"head.weight", NAN, "blocks.1.ffn.down", "wgrad.gradient", "dgrad=bf16"}}) {
    for (const Case& c : kCases) {
      CAPTURE(row.planted, c.recipe);
      Config config = native_config(Kind::kDense, c.recipe, "native");
      if (*row.override_ != 0) config.precision.override_ = {row.override_};
      gpu::Context context = simt::make_context();
      ModelFixture f(config, Recipe::kBf16, 1, kSequence, 1, -1, &context, 0, c.capability);
      f.gradients();
      REQUIRE(f.model->not_finite_operand().operand == nullptr);
      for (const ParameterRef& p : f.model->parameters()) {
        if (p.spec->name != row.planted) continue;
        std::vector<float> values = f.values(p.master);
        for (size_t i = 0; i < values.size(); i += 3) values[i] = row.value;
        copy_bytes(f.on, p.master.data, values.data(), p.master.bytes());
      }
      f.model->refresh_weights(f.on);
      f.gradients();
      const NotFiniteOperand found = f.model->not_finite_operand();
      REQUIRE(found.operand != nullptr);
      REQUIRE(found.operand->weight == row.weight);
      REQUIRE(found.operand->operand == row.operand);
      REQUIRE_FALSE(std::isfinite(found.amax));
    }
  }
}

TEST_CASE("the report lists which products are native and why the others are not") {
  const auto told = [](const char* recipe, std::vector<std::string> lines, int capability) {
    Config c = native_config(Kind::kMoe, recipe, "native");
    c.precision.override_ = std::move(lines);
    return native_rows(precision_table(c.precision, c.model), c.model, capability);
  };
  const std::vector<std::string> all{
      "attention      fprop, dgrad, wgrad native", "dense_ffn      fprop, dgrad, wgrad native",
      "experts        fprop, dgrad native, the others simulated: the experts' wgrad has no 8-bit "
      "kernel",
      "shared_experts fprop, dgrad, wgrad native"};
  REQUIRE(told("fp8_block", {}, 90) == all);
  std::vector<std::string> of_nvfp4 = all;
  of_nvfp4[2] =
      "experts        simulated in bf16: grouped products have kernels for E4M3 or E5M2 by E4M3 "
      "with tensor scales, and for E4M3 1x128 by E4M3 128x128";
  REQUIRE(told("nvfp4", {}, 100) == of_nvfp4);
  REQUIRE(
      told("nvfp4", {}, 90)[0] ==
      "attention      simulated in bf16: E2M1 1x16 by E2M1 1x16 needs compute capability 10.0 or "
      "newer");
  REQUIRE(told("nvfp4", {}, 120) == of_nvfp4);
  for (const int capability : {89, 90, 100, 120})
    REQUIRE(told("fp8_tensor", {}, capability) == all);
  REQUIRE(
      told("fp8_tensor", {}, 86) ==
      std::vector<std::string>{
          "attention      simulated in bf16: E4M3 tensor by E4M3 tensor needs compute "
          "capability 8.9 or newer",
          "dense_ffn      simulated in bf16: E4M3 tensor by E4M3 tensor needs compute "
          "capability 8.9 or newer",
          "experts        simulated in bf16: grouped products in 8 bits need compute capability "
          "8.9 or newer",
          "shared_experts simulated in bf16: E4M3 tensor by E4M3 tensor needs compute "
          "capability 8.9 or newer"});
  // Blocks of 128 are cuBLASLt's on 9.0 alone; the experts' kernel has them everywhere.
  REQUIRE(
      told("fp8_block", {}, 100)[0] ==
      "attention      simulated in bf16: E4M3 1x128 by E4M3 128x128 needs compute capability 9.0 "
      "exactly");
  REQUIRE(told("fp8_block", {}, 100)[2] == all[2]);
  REQUIRE(told("fp8_tensor", {"attention.wgrad.input=bf16"}, 90)[0] ==
          "attention      fprop, dgrad native, the others simulated: one operand is in bf16");
  REQUIRE(told("mxfp4_nmoe", {}, 90).size() == 1);
  REQUIRE(told("bf16", {}, 90).empty());
}

TEST_CASE("the recipes that a GPU multiplies in their own format") {
  using Recipes = std::vector<std::string>;
  const std::string tensor = "fp8_tensor (dense layers, experts' fprop and dgrad)";
  REQUIRE(native_recipes(80).empty());
  REQUIRE(native_recipes(86).empty());
  REQUIRE(native_recipes(89) == Recipes{tensor, "fp8_block (experts' fprop and dgrad)"});
  REQUIRE(native_recipes(90) ==
          Recipes{tensor, "fp8_block (dense layers, experts' fprop and dgrad)"});
  for (const int capability : {100, 103, 120, 121}) {
    REQUIRE(native_recipes(capability) == Recipes{tensor, "fp8_block (experts' fprop and dgrad)",
                                                  "mxfp8 (dense layers)", "nvfp4 (dense layers)"});
  }
}

TEST_CASE("two square-block, two E5M2 or mixed-block operands have no native product") {
  const QuantFormat square{ElementFormat::kE4M3, ScaleKind::k128x128};
  const QuantFormat line{ElementFormat::kE4M3, ScaleKind::k1x128};
  const QuantFormat gradient{ElementFormat::kE5M2, ScaleKind::kTensor};
  const QuantFormat tensor{ElementFormat::kE4M3, ScaleKind::kTensor};
  const QuantFormat mxfp4{ElementFormat::kE2M1, ScaleKind::k1x32};
  REQUIRE(!scaled_linear_problem(square, square, 90).empty());
  REQUIRE(!scaled_linear_problem(gradient, gradient, 90).empty());
  REQUIRE(!scaled_linear_problem(tensor, line, 90).empty());
  REQUIRE(!scaled_linear_problem(mxfp4, mxfp4, 100).empty());
  REQUIRE(!scaled_linear_problem(line, square, 100).empty());
  REQUIRE(!scaled_linear_problem(tensor, tensor, 86).empty());
  REQUIRE(scaled_linear_problem(tensor, tensor, 89).empty());
  REQUIRE(scaled_linear_problem(line, square, 90).empty());
  REQUIRE(scaled_linear_problem(gradient, tensor, 90).empty());
}

}  // namespace assay::test_native_products
