// Products of quantised operands in their own format, by the executor's stand-in for the library, beside the same recipe with decoded
// operands: there both sum in the same order, so whatever differs is a wrong copy, scale, layout or draw.
#include <cstring>

#include "cuda/context.h"
#include "cuda/profile.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "models/native_products.h"
#include "ops/fake_quantise.h"
#include "ops/scaled_linear.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"

namespace assay {

namespace {

constexpr int64_t kBatch = 2, kSequence = 48;

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
  c.precision.products = products;
  return c;
}

struct Case {
  const char* recipe;
  int capability;
};
constexpr Case kCases[] = {
    {"fp8_tensor", 90 },
    {"fp8_block",  90 },
    {"mxfp8",      100},
    {"nvfp4",      100}
};

// What is known after two steps with a sampled one, a change of phase and an evaluation.
std::vector<std::byte> after_steps(const Config& config, int capability) {
  gpu::Context context = simt::make_context();
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
    if (i != 1) continue;
    for (const QuantisedOperandState& s : f.model->quantised_operands()) {
      add(s.measures.data, s.measures.bytes());
    }
    f.model->evaluate(f.on, f.micro(0, 1), f.nats);
    add(f.nats.data, size_t(kSequence) * sizeof(float));
  }
  const auto parameters = f.parameter_bytes();
  add(parameters.data(), parameters.size());
  return known;
}

// Calls of an op in one micro-batch, forward and backward.
int64_t calls_of(const char* op, const Config& config, int capability) {
  gpu::Context context = simt::make_context();
  context.launches = gpu::Context::Launches::kWaiting;
  ModelFixture f(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &context, 0, capability);
  Profile profile;
  f.on.profile = &profile;
  f.gradients();
  for (const Profile::Entry& e : profile.entries()) {
    if (std::strcmp(e.name, op) == 0) return e.calls;
  }
  return 0;
}

}  // namespace

TEST_CASE("products in their own format have the bits of decoded ones on the executor") {
  for (const Case& c : kCases) {
    for (const Kind kind : {Kind::kDense, Kind::kMoe}) {
      INFO(c.recipe << (kind == Kind::kMoe ? ", mixture" : ", dense"));
      const auto decoded = after_steps(native_config(kind, c.recipe, "decoded"), c.capability);
      const auto native = after_steps(native_config(kind, c.recipe, "native"), c.capability);
      REQUIRE((native == decoded));
    }
  }
}

// Two blocks of qkv, out, gate_up and down, three products each; the second block of the mixture has routed and shared experts.
TEST_CASE("each dense product of a native recipe is multiplied in its own format") {
  for (const Case& c : kCases) {
    INFO(c.recipe);
    const auto calls = [&](Kind kind, const char* products, const char* op, int capability) {
      return calls_of(op, native_config(kind, c.recipe, products), capability);
    };
    REQUIRE(calls(Kind::kDense, "native", "scaled_linear", c.capability) == 24);
    REQUIRE(calls(Kind::kMoe, "native", "scaled_linear", c.capability) == 24);
    REQUIRE(calls(Kind::kDense, "native", "fake_quantise", c.capability) == 0);
    REQUIRE(calls(Kind::kDense, "decoded", "scaled_linear", c.capability) == 0);
    const bool hopper = c.capability == 90;
    REQUIRE(calls(Kind::kDense, "native", "scaled_linear", 90) == (hopper ? 24 : 0));
  }
}

TEST_CASE("an operand that is overridden leaves its product decoded and the others native") {
  Config c = native_config(Kind::kDense, "fp8_block", "native");
  c.precision.override_ = {"wgrad.gradient=bf16"};
  REQUIRE(calls_of("scaled_linear", c, 90) == 16);
  const auto native = after_steps(c, 90);
  c.precision.products = "decoded";
  REQUIRE((native == after_steps(c, 90)));
}

TEST_CASE("a run is told which products are native and why the others are not") {
  const auto told = [](const char* recipe, std::vector<std::string> lines, int capability) {
    Config c = native_config(Kind::kMoe, recipe, "native");
    c.precision.override_ = std::move(lines);
    return native_rows(precision_table(c.precision, c.model), c.model, capability);
  };
  const std::vector<std::string> all{
      "attention      fprop, dgrad, wgrad in their own formats",
      "dense_ffn      fprop, dgrad, wgrad in their own formats",
      "experts        decoded to bf16: grouped products have no kernel of their own",
      "shared_experts fprop, dgrad, wgrad in their own formats"};
  REQUIRE(told("fp8_block", {}, 90) == all);
  REQUIRE(told("nvfp4", {}, 100) == all);
  REQUIRE(told("nvfp4", {}, 90)[0] ==
          "attention      decoded to bf16: E2M1 1x16 by E2M1 1x16 needs compute capability 10.0 or "
          "newer");
  REQUIRE(told("fp8_tensor", {"attention.wgrad.input=bf16"}, 90)[0] ==
          "attention      fprop, dgrad in their own formats, the others decoded: one operand is in "
          "bf16");
  REQUIRE(told("mxfp4_nmoe", {}, 90).size() == 1);
  REQUIRE(told("bf16", {}, 90).empty());
}

TEST_CASE("two squares, two gradients and mixed blocks have no product of their own") {
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
  REQUIRE(!scaled_linear_problem(tensor, tensor, 80).empty());
  REQUIRE(scaled_linear_problem(line, square, 90).empty());
  REQUIRE(scaled_linear_problem(gradient, tensor, 90).empty());
}

}  // namespace assay
