// The logits of imported models, and the classes that our models are exported as.
#include "data/tokenizer_files.h"
#include "interop/json_fields.h"
#include "interop/tensor_map.h"
#include "tests/data/expect_error.h"
#include "tests/interop/interop_fixture.h"

namespace assay::test_families {
namespace {

std::vector<std::string> fixtures() {
  return {"llama", "qwen3", "mixtral", "qwen3_moe", "glm4_moe"};
}

Config mixture(const std::string& score) {
  Config c = small_model();
  c.model.moe = MoeConfig{.experts = 4,
                          .top_k = 2,
                          .expert_ffn = 16,
                          .router = {.score = *choice_named<RouterScore>(score)}};
  if (score == "softmax") c.model.moe->router.bias_rate = 0;  // their classes have no such bias
  return c;
}

void refused(const ModelConfig& model, const std::string& says) {
  expect_error([&] { choose_family(model); }, says);
}

}  // namespace

TEST_CASE("imported models have the logits of transformers") {
  const TempFolder folder;
  for (const std::string& name : fixtures()) {
    const Imported run = imported(fixture(name), folder / name);
    const SafetensorsFile expected(fixture(name) + "/expected.safetensors");
    const SafetensorsFile::Entry& shape = *expected.find("logits");
    std::vector<int64_t> wide(static_cast<size_t>(shape.shape[0]));
    std::vector<float> theirs(static_cast<size_t>(shape.shape[0] * shape.shape[1]));
    expected.read({"tokens", DType::kI64, {shape.shape[0]}, wide.data()});
    expected.read({"logits", DType::kF32, shape.shape, theirs.data()});
    const std::vector<int32_t> tokens(wide.begin(), wide.end());
    const std::vector<float> ours = logits(run.config.model, run.checkpoint, tokens);
    const double allowed = tol::other_program(largest(theirs));
    const double difference = largest_difference(ours, theirs);
    INFO(name << ": " << difference / allowed << " of the tolerance");
    REQUIRE(difference <= allowed);
  }
}

TEST_CASE("a configuration is exported as the class that matches it exactly") {
  Config c = small_model();
  REQUIRE(choose_family(c.model) == Family::kLlama);
  c.model.qk_norm = true;
  REQUIRE(choose_family(c.model) == Family::kQwen3);
  REQUIRE(choose_family(mixture("softmax").model) == Family::kMixtral);
  REQUIRE(choose_family(mixture("sigmoid").model) == Family::kGlm4Moe);
  c = mixture("softmax");
  c.model.qk_norm = true;
  REQUIRE(choose_family(c.model) == Family::kQwen3Moe);
  c.model.moe->first_dense_layers = 1;
  c.model.moe->router.normalize_gates = false;
  REQUIRE(choose_family(c.model) == Family::kQwen3Moe);
  c = mixture("softmax");
  c.model.moe->first_dense_layers = 2;  // both layers are dense, so there is no router
  REQUIRE(choose_family(c.model) == Family::kLlama);
}

TEST_CASE("fields that no class supports are refused by name") {
  ModelConfig m = mixture("softmax").model;
  m.moe->shared = 1;
  m.moe->first_dense_layers = 1;
  refused(m,
          "no field for model.moe.shared = 1; nor, without model.qk_norm, for "
          "model.moe.first_dense_layers = 1");
  m.moe->first_dense_layers = 0;
  refused(m, "no field for model.moe.shared = 1");
  m.qk_norm = true;
  m.moe->router.bias_rate = 1e-3;
  refused(m, "no field for model.moe.shared = 1, model.moe.router.bias_rate = 0.001");
  m = mixture("softmax").model;
  m.moe->first_dense_layers = 1;
  refused(m, "model.moe.first_dense_layers = 1");
  m = mixture("softmax").model;
  m.moe->router.bias_rate = 1e-3;
  refused(m, "model.moe.router.bias_rate = 0.001");
  m = mixture("softmax").model;
  m.moe->router.normalize_gates = false;
  refused(m, "model.moe.router.normalize_gates = false");
  m = mixture("sigmoid").model;
  m.moe->experts = m.moe->top_k = 1;
  refused(m, "model.moe.experts = 1");
}

TEST_CASE("a parameter that the map leaves out, or a part of it, is named") {
  const ModelConfig m = mixture("softmax").model;
  const std::vector<MappedTensor> whole = tensor_map(m, choose_family(m));
  REQUIRE(uncovered_parameter(m, whole).empty());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<MappedTensor> map = whole;
    map.erase(map.begin() + std::ptrdiff_t(i));
    INFO(whole[i].name);
    REQUIRE(uncovered_parameter(m, map) == whole[i].ours);
  }
}

TEST_CASE("the map covers every element once, and its size is known without building it") {
  for (const std::string kind : {"none", "softmax", "softmax, qk_norm", "sigmoid"}) {
    const std::string score = kind.substr(0, kind.find(','));
    ModelConfig m = score == "none" ? small_model().model : mixture(score).model;
    m.qk_norm = score == "sigmoid" || kind != score;
    if (score == "sigmoid") m.moe->shared = 2;
    if (m.qk_norm) m.moe->first_dense_layers = 1;
    const Family family = choose_family(m);
    const std::vector<MappedTensor> map = tensor_map(m, family);
    REQUIRE(int64_t(map.size()) == mapped_tensors(m, family));
    for (const ParameterSpec& spec : parameter_table(m)) {
      if (spec.name.ends_with("moe.bias") && score == "softmax") continue;
      std::vector<int> covered(static_cast<size_t>(spec.size()));
      for (const MappedTensor& t : map) {
        if (t.ours != spec.name) continue;
        for (int64_t i = 0; i < t.size(); ++i) covered[static_cast<size_t>(t.begin + i)] += 1;
      }
      INFO(spec.name);
      REQUIRE(covered == std::vector<int>(covered.size(), 1));
    }
  }
}

}  // namespace assay::test_families
