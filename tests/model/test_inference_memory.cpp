// The memory plan of a decoder for inference, compared with the plan for training.
#include "models/decoder/decoder.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"

namespace assay::test_inference_memory {

namespace {

constexpr int64_t kSequence = 32, kBatch = 3, kRows = kBatch * kSequence;

ModelConfig config_of(int64_t layers) {
  ModelConfig c = small_config(90).model;
  c.layers = layers;
  c.kv_heads = 1;
  c.moe = six_experts();  // the first block is dense
  c.moe->expert_ffn = 64;
  return c;
}

struct Planned {
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  Exec on{.threads = 2};
  View<float, 2> logits;

  Planned(const ModelConfig& config, Purpose purpose, const PrecisionConfig& precision = {}) {
    model = make_decoder(
        config, Recipe::kBf16,
        {.micro_batch = kBatch, .sequence = kSequence, .precision = precision, .purpose = purpose});
    model->plan(plan);
    model->plan_cache(plan, kBatch);
    plan.add(Section::kHostVisible, "logits", logits, {1, config.vocab_size});
    plan.add(Section::kScratch, "workspace", on.workspace, {model->workspace_bytes()});
  }
  void load() {
    plan.allocate();
    model->bind(on);
    model->initialise(on, 5);
    model->refresh_weights(on);
  }
  size_t activations() const { return plan.section_bytes(Section::kActivations); }
};

std::vector<int32_t> tokens() {
  std::vector<int32_t> t(kRows);
  for (size_t i = 0; i < t.size(); ++i) t[i] = int32_t((i * i + 7 * i) % 90);
  return t;
}

std::vector<float> evaluated(Planned& p) {
  const std::vector<int32_t> token = tokens();
  std::vector<float> nats(size_t{kRows});
  const View<const int32_t, 1> view{token.data(), {kRows}};
  p.model->evaluate(p.on, {.token = view, .target = view, .batch = kBatch, .sequence = kSequence},
                    {nats.data(), {kRows}});
  return nats;
}

// The logits after 20 tokens, read in two calls.
std::vector<float> continued(Planned& p) {
  const std::vector<int32_t> token = tokens();
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 17}, {17, 20}}) {
    const TextPart part{.text = 1, .position = begin, .tokens = end - begin};
    p.model->extend(p.on, {.token = {token.data() + begin, {end - begin}}, .part = {&part, {1}}},
                    p.logits);
  }
  return {p.logits.data, p.logits.data + p.logits.size()};
}

}  // namespace

TEST_CASE("inference plans no gradients, and activations for one layer only") {
  const Planned two(config_of(2), Purpose::kInference), nine(config_of(9), Purpose::kInference);
  const Planned trained_two(config_of(2), Purpose::kTraining);
  const Planned trained_nine(config_of(9), Purpose::kTraining);
  REQUIRE(trained_nine.plan.section_bytes(Section::kGradients) > 0);
  REQUIRE(nine.plan.section_bytes(Section::kGradients) == 0);
  // Each further layer adds only its KV cache.
  const size_t cache = size_t(kBatch * kSequence * 2 * 32) * sizeof(bf16);
  REQUIRE(nine.activations() - two.activations() == 7 * cache);
  REQUIRE(trained_nine.activations() - trained_two.activations() > 30 * cache);
  REQUIRE(nine.plan.section_bytes(Section::kScratch) * 2 <
          trained_nine.plan.section_bytes(Section::kScratch));
  REQUIRE(nine.plan.total_bytes() + trained_nine.plan.section_bytes(Section::kGradients) +
              trained_nine.activations() <
          trained_nine.plan.total_bytes() + nine.activations());
}

TEST_CASE("inference on a CPU keeps no rounded copy of packed weights") {
  const Planned inference(config_of(3), Purpose::kInference);
  const Planned training(config_of(3), Purpose::kTraining);
  const auto bytes_of = [](const Planned& p, const std::string& end) {
    size_t bytes = 0;
    for (const MemoryPlan::Entry& entry : p.plan.entries()) {
      if (entry.section == Section::kParameters && entry.name.ends_with(end)) bytes += entry.bytes;
    }
    return bytes;
  };
  REQUIRE(bytes_of(inference, ".packed") == bytes_of(training, ".packed"));
  REQUIRE(bytes_of(inference, ".bf16") == bytes_of(inference, "embed.weight.bf16"));
  REQUIRE(bytes_of(training, ".bf16") > 3 * bytes_of(inference, ".bf16"));
  const size_t saved = training.plan.section_bytes(Section::kParameters) -
                       inference.plan.section_bytes(Section::kParameters);
  REQUIRE(saved + bytes_of(inference, "packing") >=
          bytes_of(training, ".bf16") - bytes_of(inference, ".bf16"));
  REQUIRE(saved > bytes_of(training, ".bf16") / 3);
}

TEST_CASE("inference gives the same bits in less memory") {
  for (const std::string recipe : {"bf16", "mxfp8"}) {
    PrecisionConfig precision;
    precision.recipe = recipe;
    Planned inference(config_of(5), Purpose::kInference, precision);
    Planned training(config_of(5), Purpose::kTraining, precision);
    inference.load();
    training.load();
    REQUIRE(evaluated(inference) == evaluated(training));
    REQUIRE(continued(inference) == continued(training));
  }
}

}  // namespace assay::test_inference_memory
