// Export and import are inverses.
#include <algorithm>
#include <filesystem>

#include "data/tokenizer_files.h"
#include "interop/json_fields.h"
#include "interop/tensor_map.h"
#include "tests/interop/interop_fixture.h"

namespace assay::test_round_trip {
namespace {

struct Case {
  std::string name;
  Config config;
};

// Models that use every gain folded into weights; no gain is a power of two.
std::vector<Case> with_gains() {
  Config dense = small_model();
  dense.model.attention_gain = AttentionGain::kDepth;
  dense.model.layers = 3;
  dense.model.embed_gain = 1.3;
  dense.model.logit_gain = 0.7;
  Config tied = dense;
  tied.model.tie_embeddings = true;
  Config one_gain = tied;
  one_gain.model.logit_gain = one_gain.model.embed_gain;
  Config softmax = dense;
  softmax.model.moe =
      MoeConfig{.experts = 4,
                .top_k = 2,
                .expert_ffn = 16,
                .router = {.score = RouterScore::kSoftmax, .gate_scale = 1.9, .bias_rate = 0}};
  Config sigmoid = dense;
  sigmoid.model.qk_norm = true;
  sigmoid.model.moe = MoeConfig{.experts = 5,
                                .top_k = 2,
                                .shared = 1,
                                .expert_ffn = 16,
                                .first_dense_layers = 1,
                                .router = {.score = RouterScore::kSigmoid,
                                           .route_scale = 1.4,
                                           .gate_scale = 2.1,
                                           .bias_rate = 1e-3}};
  Config no_bias = sigmoid;  // and no shared expert, so both tensors are empty
  no_bias.model.moe->shared = 0;
  no_bias.model.moe->router.bias_rate = 0;
  Config no_sum = sigmoid;
  no_sum.model.moe->router.normalize_gates = false;
  Config norms = softmax;
  norms.model.qk_norm = true;
  norms.model.moe->first_dense_layers = 1;
  norms.model.moe->router.normalize_gates = false;
  return {{"dense", dense}, {"tied", tied},       {"one_gain", one_gain}, {"softmax", softmax},
          {"norms", norms}, {"sigmoid", sigmoid}, {"no_bias", no_bias},   {"no_sum", no_sum}};
}

void exported(const Config& config, const std::string& checkpoint, const std::string& out,
              DType dtype = DType::kF32, int64_t shard_bytes = 1 << 30,
              const ImportedFacts& facts = {}) {
  export_checkpoint(config,
                    {.checkpoint = checkpoint,
                     .out = out,
                     .dtype = dtype,
                     .shard_bytes = shard_bytes,
                     .imported = facts},
                    std::nullopt);
}

// config.json of a model of with_gains(), which is exported to FOLDER/hf.
nlohmann::json exported_json(const std::string& name, const TempFolder& folder) {
  const std::vector<Case> cases = with_gains();
  const Config config = std::find_if(cases.begin(), cases.end(), [&](const Case& c) {
                          return c.name == name;
                        })->config;
  exported(config, random_checkpoint(config, folder / "run"), folder / "hf");
  return read_json_object(folder / "hf/config.json", "");
}

}  // namespace

TEST_CASE("a model imported, exported and imported again is equal to the bit") {
  const TempFolder folder;
  for (const std::string name : {"llama", "qwen3", "mixtral", "qwen3_moe", "glm4_moe"}) {
    const Imported first = imported(fixture(name), folder / name + "-1");
    exported(first.config, first.checkpoint, folder / name, DType::kF32, 20'000);
    REQUIRE(std::filesystem::exists(folder / name + "/model.safetensors.index.json"));
    const Imported second = imported(folder / name, folder / name + "-2");
    REQUIRE(second.family == first.family);
    REQUIRE(read_file(first.checkpoint + "/model.safetensors") ==
            read_file(second.checkpoint + "/model.safetensors"));
    const std::vector<int32_t> tokens = some_tokens(first.config.model.vocab_size);
    REQUIRE(logits(first.config.model, first.checkpoint, tokens) ==
            logits(second.config.model, second.checkpoint, tokens));
  }
}

TEST_CASE("the index of an export names the tensors in the order of the model") {
  const TempFolder folder;
  const Imported run = imported(fixture("mixtral"), folder / "run");
  exported(run.config, run.checkpoint, folder / "hf", DType::kF32, 20'000);
  const auto index =
      nlohmann::ordered_json::parse(read_file(folder / "hf/model.safetensors.index.json"));
  std::vector<std::string> names, expected;
  for (const auto& [name, file] : index["weight_map"].items()) names.push_back(name);
  for (const MappedTensor& t : tensor_map(run.config.model, run.family)) expected.push_back(t.name);
  REQUIRE(names == expected);
}

TEST_CASE("export keeps the bits of a model without gains, and the logits of one with gains") {
  const TempFolder folder;
  for (const Case& c : with_gains()) {
    INFO(c.name);
    const std::string checkpoint = random_checkpoint(c.config, folder / c.name);
    exported(c.config, checkpoint, folder / c.name + "-hf");
    const Imported back = imported(folder / c.name + "-hf", folder / c.name + "-back");
    REQUIRE(back.config.model.attention_gain == AttentionGain::kOne);
    REQUIRE(back.config.model.tie_embeddings == (c.name == "one_gain"));
    const auto& moe = back.config.model.moe;
    REQUIRE((!moe || moe->router.normalize_gates == c.config.model.moe->router.normalize_gates));
    const std::vector<int32_t> tokens = some_tokens(c.config.model.vocab_size);
    const std::vector<float> before = logits(c.config.model, checkpoint, tokens);
    const std::vector<float> after = logits(back.config.model, back.checkpoint, tokens);
    const double difference = largest_difference(before, after);
    INFO(difference / tol::other_program(largest(before)) << " of the tolerance");
    REQUIRE(largest(before) > 0.1);
    REQUIRE(difference <= tol::other_program(largest(before)));
  }
  const Config plain = small_model();
  const std::string checkpoint = random_checkpoint(plain, folder / "plain");
  exported(plain, checkpoint, folder / "plain-hf");
  const Imported back = imported(folder / "plain-hf", folder / "plain-back");
  REQUIRE(read_file(checkpoint + "/model.safetensors") ==
          read_file(back.checkpoint + "/model.safetensors"));
}

TEST_CASE("an imported model is exported with its context and its ids of begin and end") {
  const TempFolder folder;
  const std::string source = folder / "source", run = folder / "run";
  std::filesystem::copy(fixture("llama"), source);
  nlohmann::json config = read_json_object(source + "/config.json", "");
  config["max_position_embeddings"] = 8192;
  config["bos_token_id"] = 1;
  config["eos_token_id"] = {2, 3};
  write_file_atomic(source + "/config.json", config.dump());
  Imported first = imported(source, run);
  const auto config_of = [&](const std::string& out) {
    exported(first.config, first.checkpoint, out, DType::kF32, 1 << 30, imported_facts(run));
    return read_json_object(out + "/config.json", "");
  };
  const nlohmann::json again = config_of(folder / "again");
  for (const char* key : {"max_position_embeddings", "bos_token_id", "eos_token_id"}) {
    REQUIRE(again[key] == config[key]);
  }
  REQUIRE(read_json_object(folder / "again/generation_config.json", "")["eos_token_id"] ==
          config["eos_token_id"]);
  first.config.run.sequence = 16384;
  REQUIRE(config_of(folder / "longer")["max_position_embeddings"] == 16384);
  // A run that an earlier version imported.
  write_file_atomic(run + "/imported.json", "{}");
  first.config.run.sequence = 2048;
  const nlohmann::json earlier = config_of(folder / "earlier");
  REQUIRE(earlier["max_position_embeddings"] == 2048);
  REQUIRE(earlier["bos_token_id"].is_null());
  REQUIRE(imported_facts("").positions == 0);
}

TEST_CASE("an imported model is exported with its sliding window, where the class has one") {
  const TempFolder folder;
  const auto again = [&](const std::string& name, const nlohmann::json& fields) {
    const std::string source = folder / name, run = source + "-run", out = source + "-out";
    std::filesystem::copy(fixture(name), source);
    nlohmann::json config = read_json_object(source + "/config.json", "");
    config.update(fields);
    write_file_atomic(source + "/config.json", config.dump());
    const Imported first = imported(source, run);
    exported(first.config, first.checkpoint, out, DType::kF32, 1 << 30, imported_facts(run));
    const int64_t window = fields["sliding_window"];
    REQUIRE(imported_facts(run).window == window);
    imported(out, source + "-again");
    REQUIRE(imported_facts(source + "-again").window == (name == "llama" ? 0 : window));
    return read_json_object(out + "/config.json", "");
  };
  REQUIRE(again("mixtral", {{"sliding_window", 64}})["sliding_window"] == 64);
  const nlohmann::json of_qwen3 = again(
      "qwen3", {{"sliding_window", 96}, {"use_sliding_window", true}, {"max_window_layers", 1}});
  REQUIRE(of_qwen3["sliding_window"] == 96);
  REQUIRE(of_qwen3["use_sliding_window"] == true);
  REQUIRE(of_qwen3["max_window_layers"] == 1);
  const nlohmann::json of_mixture =
      again("qwen3_moe", {{"sliding_window", 96}, {"use_sliding_window", true}});
  REQUIRE(of_mixture["sliding_window"] == 96);
  REQUIRE(of_mixture["use_sliding_window"] == true);
  REQUIRE_FALSE(of_mixture.contains("max_window_layers"));
  REQUIRE_FALSE(again("llama", {{"sliding_window", 64}}).contains("sliding_window"));
}

TEST_CASE("in bf16 every weight is rounded once, and selection biases are not") {
  const TempFolder folder;
  Config config = small_model();
  config.model.moe = MoeConfig{.experts = 4, .top_k = 2, .expert_ffn = 16, .router = {}};
  config.model.moe->router.bias_rate = 1e-3;
  const std::string checkpoint = random_checkpoint(config, folder / "run");
  exported(config, checkpoint, folder / "hf", DType::kBF16);
  const SafetensorsFile ours(checkpoint + "/model.safetensors");
  const SafetensorsFile theirs(folder / "hf/model.safetensors");
  const std::string head = "lm_head.weight",
                    bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  std::vector<float> master(70 * 64), bias_master(4), bias_written(4);
  std::vector<bf16> written(master.size());
  ours.read({"head.weight", DType::kF32, {70, 64}, master.data()});
  theirs.read({head, DType::kBF16, {70, 64}, written.data()});
  for (size_t i = 0; i < master.size(); ++i) REQUIRE(written[i].bits == bf16(master[i]).bits);
  ours.read({"blocks.1.moe.bias", DType::kF32, {4}, bias_master.data()});
  theirs.read({bias, DType::kF32, {4}, bias_written.data()});
  REQUIRE(bias_master == bias_written);
}

TEST_CASE("an export that transformers 5 does not open says so") {
  const TempFolder folder;
  Config config = small_model();
  const auto reason = [&](const std::string& name) {
    const std::string checkpoint = random_checkpoint(config, folder / name);
    return export_checkpoint(config,
                             {.checkpoint = checkpoint,
                              .out = folder / name + "-hf",
                              .dtype = DType::kF32,
                              .shard_bytes = 1 << 30},
                             std::nullopt)
        .not_opened;
  };
  REQUIRE(reason("even").empty());
  config.model.heads = 5;
  config.model.head_dim = 32;
  REQUIRE(reason("uneven").find("model.heads = 5 divides model.hidden = 64") != std::string::npos);
  config.model.qk_norm = true;
  REQUIRE(reason("qk_norm").empty());
}

TEST_CASE("config.json has the fields that transformers needs") {
  const TempFolder folder;
  const nlohmann::json j = exported_json("sigmoid", folder);
  REQUIRE(j["architectures"] == nlohmann::json({"Glm4MoeForCausalLM"}));
  REQUIRE(j["model_type"] == "glm4_moe");
  REQUIRE(j["torch_dtype"] == "float32");
  REQUIRE(j["head_dim"] == 32);
  REQUIRE(j["partial_rotary_factor"] == 1.0);
  REQUIRE(j["routed_scaling_factor"] == 2.1);
  REQUIRE(j["first_k_dense_replace"] == 1);
  REQUIRE(j["norm_topk_prob"] == true);
  REQUIRE(j["use_qk_norm"] == true);
  REQUIRE(j["num_nextn_predict_layers"] == 0);
  REQUIRE(j["tie_word_embeddings"] == false);
  REQUIRE(j["eos_token_id"].is_null());
  const SafetensorsFile file(folder / "hf/model.safetensors");
  REQUIRE(file.metadata().at("format") == "pt");
  REQUIRE(file.find("model.layers.2.mlp.experts.4.down_proj.weight")->shape ==
          std::vector<int64_t>{64, 16});
  REQUIRE(file.find("model.layers.0.mlp.gate_proj.weight")->shape == std::vector<int64_t>{48, 64});
}

TEST_CASE("config.json of a softmax router with norms of queries and keys") {
  const TempFolder folder;
  const nlohmann::json j = exported_json("norms", folder);
  REQUIRE(j["architectures"] == nlohmann::json({"Qwen3MoeForCausalLM"}));
  REQUIRE(j["model_type"] == "qwen3_moe");
  REQUIRE(j["num_experts"] == 4);
  REQUIRE(j["moe_intermediate_size"] == 16);
  REQUIRE(j["norm_topk_prob"] == false);
  REQUIRE(j["decoder_sparse_step"] == 1);
  REQUIRE(j["mlp_only_layers"] == nlohmann::json({0}));
  REQUIRE(j["use_sliding_window"] == false);
}

}  // namespace assay::test_round_trip
