// The code flips that a sampled step reports for weights, and the non-finite operand that any step
// names.
#include <cmath>
#include <map>

#include "models/linear/precision.h"
#include "models/linear/quantised_scratch.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/cpu_amax.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/ref/fake_quantise.h"

namespace assay::test_quantised_operands {

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

// One step in the trainer's order of calls.
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

// The codes of a weight in its format, including signs, by the reference.
std::vector<int> codes(const QuantFormat& format, const ParameterSpec& spec,
                       const std::vector<float>& w, ref::BlocksAlong along) {
  const int64_t columns = spec.shape.back(), rows = int64_t(w.size()) / columns;
  const int64_t matrices = spec.shape.size() == 3 ? spec.shape[0] : 1;
  std::vector<int64_t> offsets;
  for (int64_t m = 0; m <= matrices; ++m) offsets.push_back(m * rows / matrices);
  return ref::fake_quantised(format, w, rows, columns, offsets, along, {}).codes;
}

// A planned buffer by name, with its current contents; empty if there is none.
template <typename T>
View<const T, 1> buffer(const ModelFixture& f, const std::string& name) {
  for (const MemoryPlan::Entry& e : f.plan.entries()) {
    if (e.name == name) return {static_cast<const T*>(*e.address), {int64_t(e.bytes / sizeof(T))}};
  }
  return {};
}

}  // namespace

// Compares with the tensors that still exist after a step: those that forward keeps, and the
// gradients of block 0, which backward reaches last.
TEST_CASE("the ops record the amax of the tensors that products read") {
  struct Row {
    int64_t half;
    SublayerTensor tensor;
    const char* buffer;
    int64_t width = 0;  // if > 0, the tensor is the buffer's first (tokens, width) elements
  };
  const Row rows[] = {
      {0, SublayerTensor::kInput, "blocks.0.attn.norm.y"},
      {0, SublayerTensor::kInner, "blocks.0.attn.att"},
      {0, SublayerTensor::kDinner, "dqkv"},
      {0, SublayerTensor::kDbranch, "dbranch"},
      {1, SublayerTensor::kInput, "blocks.0.ffn.norm.y"},
      {1, SublayerTensor::kInner, "blocks.0.ffn.h"},
      {1, SublayerTensor::kDinner, "dgate_up", 2 * 64},
      {2, SublayerTensor::kInput, "blocks.1.attn.norm.y"},
      {2, SublayerTensor::kInner, "blocks.1.attn.att"},
      {3, SublayerTensor::kInput, "blocks.1.ffn.norm.y"},
      {3, SublayerTensor::kInner, "blocks.1.moe.h"},
      {3, SublayerTensor::kSharedInner, "blocks.1.moe.shared.h"},
      {3, SublayerTensor::kDexpertOut, "dexpert_out"},
  };
  for (const bool qk_norm : {false, true}) {
    Config c = config_of("fp8_tensor");
    c.model.qk_norm = qk_norm;
    c.model.attention_gain = AttentionGain::kDepth;  // without it nothing keeps this gradient
    ModelFixture f(c, Recipe::kBf16, 4, 20);
    for (int i = 0; i < 2; ++i) step(f, i, MicroScale::Sample::kNothing);
    const View<const float, 1> words = buffer<float>(f, "quantised.known_amax");
    REQUIRE(words.size() == 4 * kSublayerTensors);
    for (const Row& row : rows) {
      CAPTURE(row.buffer, qk_norm);
      const View<const bf16, 1> x = buffer<bf16>(f, row.buffer);
      REQUIRE(x.size() > 0);
      const int64_t n = row.width > 0 ? 4 * 20 * row.width : x.size();
      const float word = words[row.half * kSublayerTensors + int(row.tensor)];
      REQUIRE(std::bit_cast<uint32_t>(word) == largest_bits(x.data, n));
      REQUIRE(word > 0);
    }
    // These gradients no longer exist after the step, so their slots can only be checked for being
    // set.
    REQUIRE(words[1 * kSublayerTensors + int(SublayerTensor::kDbranch)] > 0);
    REQUIRE(words[3 * kSublayerTensors + int(SublayerTensor::kDinner)] > 0);
    REQUIRE(words[3 * kSublayerTensors + int(SublayerTensor::kSharedDinner)] > 0);
    REQUIRE(words[3 * kSublayerTensors + int(SublayerTensor::kDbranch)] > 0);
  }
  for (const char* recipe : {"mxfp8", "mxfp8_nmoe", "mxfp4_nmoe"}) {
    ModelFixture f(config_of(recipe), Recipe::kBf16, 4, 20);
    REQUIRE(buffer<float>(f, "quantised.known_amax").empty());
  }
}

TEST_CASE("flips count the codes changed by the sampled step's update") {
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

TEST_CASE("the first non-finite operand is named, in sampled and unsampled steps") {
  struct Row {
    const char* planted;  // the parameter in which the value is planted
    float value;
    const char *weight, *operand;  // the expected names
  };
  for (const Row& row : {Row{"blocks.1.attn.qkv", INFINITY, "blocks.1.attn.qkv", "fprop.weight"},
                         Row{"blocks.0.ffn.down", NAN, "blocks.0.ffn.down", "fprop.weight"},
                         Row{"embed.weight", INFINITY, "blocks.0.attn.qkv", "fprop.input"},
                         Row{"blocks.1.attn.norm", NAN, "blocks.1.attn.qkv", "fprop.input"},
                         Row{"head.weight", NAN, "blocks.1.moe.down", "dgrad.gradient"},
                         Row{nullptr, 0, nullptr, nullptr}}) {
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

TEST_CASE("overflow in an evaluation is reported and does not affect the next step") {
  for (const char* recipe : {"fp8_tensor", "mxfp8", "nvfp4"}) {
    CAPTURE(recipe);
    ModelFixture f(config_of(recipe), Recipe::kBf16, 4, 20);
    const int32_t unseen = 249;  // occurs only in the evaluation
    for (std::vector<int32_t>* ids : {&f.token, &f.target}) {
      for (int32_t& id : *ids) id = id == unseen ? 0 : id;
    }
    step(f, 0, MicroScale::Sample::kNothing);
    const View<float, 1> embedding = parameter(f, "embed.weight").master;
    const int64_t hidden = f.config.model.hidden;
    for (int64_t c = 0; c < hidden; ++c) embedding[unseen * hidden + c] = INFINITY;
    f.model->refresh_weights(f.on);
    const int32_t seen = f.token[3];
    f.token[3] = unseen;
    f.model->evaluate(f.on, f.all(), f.nats);
    f.token[3] = seen;
    REQUIRE_FALSE(std::isfinite(f.nats[3]));
    f.read_back();
    const NotFiniteOperand found = f.model->not_finite_operand();
    REQUIRE(found.operand != nullptr);
    REQUIRE(found.operand->weight == "blocks.0.attn.qkv");
    REQUIRE(found.operand->operand == "fprop.input");
    step(f, 1, MicroScale::Sample::kNothing);
    REQUIRE(f.model->not_finite_operand().operand == nullptr);
    REQUIRE(std::isfinite(f.model->loss_sum()));
  }
}

}  // namespace assay::test_quantised_operands
