// What a sampled step tells of a weight's codes, and the operand that a step of any kind names when something is not finite.
#include <cmath>
#include <map>

#include "models/precision.h"
#include "ops/fake_quantise.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/ref/fake_quantise.h"

namespace assay {

namespace {

Config config_of(const std::string& recipe) {
  Config c = small_config(250);
  c.model.ffn = 64;
  c.model.moe = six_experts();
  c.model.moe->expert_ffn = 32;
  c.optimizer.lr = 3e-3;
  c.precision.recipe = recipe;
  c.precision.bf16_last_layers = 0;
  return c;
}

// As the trainer does it.
void step(ModelFixture& f, int64_t index, MicroScale::Sample sample) {
  f.model->begin_step(
      f.on, {.loss = 1.0f / float(f.batch * f.sequence), .first_micro = index, .sample = sample});
  f.model->forward_backward(f.on, f.all());
  f.optimizer->step(f.on, index, 1.0);
  f.model->update_router_bias(f.on, 1.0f);
  f.read_back();
}

ParameterRef parameter(ModelFixture& f, const std::string& name) {
  for (const ParameterRef& p : f.model->parameters()) {
    if (p.spec->name == name) return p;
  }
  FAIL("no parameter " << name);
  return {};
}

using Masters = std::map<std::string, std::vector<float>>;
Masters masters(ModelFixture& f) {
  Masters values;
  for (const ParameterRef& p : f.model->parameters()) values[p.spec->name] = f.values(p.master);
  return values;
}

// Codes of a weight in its format, sign included, by the reference.
std::vector<int> codes(const QuantFormat& format, const ParameterSpec& spec,
                       const std::vector<float>& w, ref::BlocksAlong along) {
  const int64_t columns = spec.shape.back(), rows = int64_t(w.size()) / columns;
  const int64_t matrices = spec.shape.size() == 3 ? spec.shape[0] : 1;
  std::vector<int64_t> offsets;
  for (int64_t m = 0; m <= matrices; ++m) offsets.push_back(m * rows / matrices);
  return ref::fake_quantised(format, w, rows, columns, offsets, along, {}).codes;
}

}  // namespace

TEST_CASE("flips are the codes that the update of the sampled step has changed") {
  for (const char* recipe : {"fp8_tensor", "mxfp8", "nvfp4", "mxfp4_nmoe"}) {
    CAPTURE(recipe);
    const Config c = config_of(recipe);
    const PrecisionTable table = precision_table(c.precision, c.model);
    ModelFixture f(c, Recipe::kBf16, 4, 20);
    step(f, 0, MicroScale::Sample::kNothing);
    step(f, 1, MicroScale::Sample::kFormats);
    step(f, 2, MicroScale::Sample::kNothing);
    const Masters before = masters(f);
    step(f, 3, MicroScale::Sample::kFormats);
    const Masters after = masters(f);
    int weights = 0;
    for (const QuantisedOperandState& s : f.model->quantised_operands()) {
      CAPTURE(s.weight, s.operand);
      if (!s.operand.ends_with(".weight")) {
        REQUIRE(s.measures[kFakeFlips] == 0);
        continue;
      }
      weights += 1;
      ProductRole role = ProductRole::kAttention;
      while (product_role_name(role) != s.role) role = ProductRole(int(role) + 1);
      const bool fprop = s.operand == "fprop.weight";
      const QuantFormat format =
          (fprop ? table.of(role).fprop_weight : table.of(role).dgrad_weight).format;
      const auto along = fprop ? ref::BlocksAlong::kColumns : ref::BlocksAlong::kRows;
      const ParameterSpec& spec = *parameter(f, s.weight).spec;
      const std::vector<int> was = codes(format, spec, before.at(s.weight), along);
      const std::vector<int> is = codes(format, spec, after.at(s.weight), along);
      double flips = 0;
      for (size_t i = 0; i < is.size(); ++i) flips += is[i] != was[i];
      REQUIRE(s.measures[kFakeFlips] == flips);
      REQUIRE(flips > 0);
      REQUIRE(s.measures[kFakeValues] == double(is.size()));
    }
    REQUIRE(weights > 0);
  }
}

TEST_CASE("the first operand that is not finite is named, in a step that is not sampled too") {
  struct Row {
    const char* planted;  // in this parameter
    float value;
    const char *weight, *operand;  // is named
  };
  for (const Row& row : {
           Row{"blocks.1.attn.qkv",  INFINITY, "blocks.1.attn.qkv", "fprop.weight"  },
           Row{"blocks.0.ffn.down",  NAN,      "blocks.0.ffn.down", "fprop.weight"  },
           Row{"embed.weight",       INFINITY, "blocks.0.attn.qkv", "fprop.input"   },
           Row{"blocks.1.attn.norm", NAN,      "blocks.1.attn.qkv", "fprop.input"   },
           Row{"head.weight",        NAN,      "blocks.1.moe.down", "dgrad.gradient"},
           Row{nullptr,              0,        nullptr,             nullptr         }
  }) {
    for (const char* recipe : {"fp8_tensor", "mxfp8", "nvfp4"}) {
      for (const auto sample : {MicroScale::Sample::kNothing, MicroScale::Sample::kFormats}) {
        ModelFixture f(config_of(recipe), Recipe::kBf16, 4, 20);
        CAPTURE(recipe, int(sample));
        step(f, 0, sample);
        REQUIRE(f.model->not_finite_operand().operand == nullptr);
        if (row.planted == nullptr) continue;
        CAPTURE(row.planted);
        const View<float, 1> master = parameter(f, row.planted).master;
        for (int64_t i = 0; i < master.size(); i += 3) master[i] = row.value;
        f.model->refresh_weights(f.on);
        step(f, 1, sample);
        const NotFiniteOperand found = f.model->not_finite_operand();
        REQUIRE(found.operand != nullptr);
        REQUIRE(found.operand->weight == row.weight);
        REQUIRE(found.operand->operand == row.operand);
        REQUIRE_FALSE(std::isfinite(found.amax));
      }
    }
  }
}

}  // namespace assay
