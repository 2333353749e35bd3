// Invalid model folders give one error and one hint, and no run is made.
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "data/tokenizer_files.h"
#include "engine/run/imported_run.h"
#include "interop/imported_facts.h"
#include "interop/json_fields.h"
#include "tests/data/expect_error.h"
#include "tests/interop/interop_fixture.h"

namespace assay::test_bad_folders {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A copy of a fixture that a test damages.
struct Damaged {
  explicit Damaged(const std::string& name) {
    fs::copy(fixture(name), folder / "model");
    path = folder / "model";
  }
  std::string file(const std::string& name) const { return path + "/" + name; }
  void change(const std::function<void(json&)>& how) const {
    json config = read_json_object(file("config.json"), "");
    how(config);
    write_file_atomic(file("config.json"), config.dump());
  }
  void refused(const std::string& says, const std::vector<std::string>& sets = {}) const {
    expect_error([&] { imported(path, folder / "run", sets); }, says);
    REQUIRE_FALSE(fs::exists(folder / "run"));
  }

  TempFolder folder;
  std::string path;
};

void refused_with(const std::string& name, const std::string& key, const json& value,
                  const std::string& says) {
  INFO(name << ": " << key << " = " << value);
  const Damaged model(name);
  model.change([&](json& config) {
    if (value == "(absent)") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  });
  model.refused(says);
}

}  // namespace

TEST_CASE("a file with a key twice is refused: programs differ in which one they read") {
  const auto with_key = [](const std::string& file, const std::string& key) {
    const std::string text = read_file(file);
    const size_t at = text.find('{') + 1;
    write_file_atomic(file, text.substr(0, at) + key + ", " + text.substr(at));
  };
  {
    const Damaged model("glm4_moe");
    with_key(model.file("config.json"), R"("hidden_size": 1)");
    model.refused("config.json: the key \"hidden_size\" is there twice");
  }
  const Damaged model("glm4_moe");
  with_key(model.file("model.safetensors.index.json"), R"("weight_map": {})");
  model.refused("model.safetensors.index.json: the key \"weight_map\" is there twice");
}

TEST_CASE("fields that are missing, of another type or contradictory are refused") {
  const json absent = "(absent)";
  refused_with("llama", "hidden_size", absent, "hidden_size is missing");
  refused_with("llama", "hidden_size", "32", "hidden_size is \"32\", expected a whole number");
  refused_with("llama", "hidden_size", 32.5, "hidden_size is 32.5");
  refused_with("llama", "hidden_size", -32, "hidden_size is -32");
  refused_with("llama", "hidden_size", json::array({32}), "hidden_size is a list");
  refused_with("llama", "hidden_size", uint64_t{1} << 63, "hidden_size is 9223372036854775808");
  refused_with("llama", "hidden_size", 64, "is (64, 32), config.json requires (64, 64)");
  refused_with("llama", "rms_norm_eps", absent, "rms_norm_eps is missing");
  refused_with("llama", "rms_norm_eps", 0, "rms_norm_eps is 0");
  refused_with("mixtral", "rope_theta", absent, "rope_theta is missing");
  refused_with("llama", "num_key_value_heads", 3, "num_key_value_heads 3 does not divide");
  refused_with("llama", "head_dim", 24, "heads are 24 wide (head_dim)");
  refused_with("llama", "head_dim", absent, "heads are 16 wide (hidden_size / heads)");
  refused_with("llama", "num_hidden_layers", 3,
               "describes a model of 30 tensors, the files have 21");
  refused_with("llama", "num_hidden_layers", 1 << 30, "tensors, the files have 21");
  refused_with("llama", "num_hidden_layers", 1, "has a tensor model.layers.1");
  refused_with("llama", "vocab_size", 63, "is (64, 32), config.json requires (63, 32)");
  refused_with("llama", "tie_word_embeddings", "no",
               "tie_word_embeddings is \"no\", expected true");
  refused_with("llama", "architectures", json::array({"GPT2LMHeadModel"}), "GPT2LMHeadModel");
  refused_with("llama", "architectures", json::array(),
               "architectures is not a list with the name");
  refused_with("llama", "architectures", json::array({"MixtralForCausalLM"}),
               "but model_type is llama");
  refused_with("mixtral", "num_key_value_heads", absent, "num_key_value_heads is missing");
  refused_with("mixtral", "num_local_experts", absent, "num_local_experts is missing");
  refused_with("mixtral", "num_experts_per_tok", 5,
               "num_experts_per_tok 5 is more than the 4 experts");
  refused_with("mixtral", "num_local_experts", 1 << 30, "tensors, the files have");
  refused_with("glm4_moe", "n_routed_experts", 1,
               "n_routed_experts is 1, expected a whole number from 2");
  refused_with("glm4_moe", "n_shared_experts", absent, "n_shared_experts is missing");
  refused_with("glm4_moe", "first_k_dense_replace", 3, "first_k_dense_replace 3 is more than");
  refused_with("glm4_moe", "first_k_dense_replace", 0, "describes a model of");
  refused_with("glm4_moe", "norm_topk_prob", nullptr,
               "norm_topk_prob is null, expected true or false");
  refused_with("qwen3_moe", "num_experts", absent, "num_experts is missing");
  refused_with("qwen3_moe", "num_local_experts", 5, "num_experts is 6, but num_local_experts is 5");
  refused_with("qwen3_moe", "norm_topk_prob", nullptr,
               "norm_topk_prob is null, expected true or false");
  refused_with("qwen3_moe", "mlp_only_layers", json::array(), "describes a model of");
  refused_with("qwen3_moe", "mlp_only_layers", 1, "mlp_only_layers is 1: expected a list");
}

TEST_CASE("unsupported features are refused") {
  refused_with("llama", "attention_bias", true, "attention_bias is true");
  refused_with("llama", "mlp_bias", true, "mlp_bias is true");
  refused_with("llama", "hidden_act", "gelu", "hidden_act is \"gelu\"");
  refused_with("llama", "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}},
               "rope_scaling.rope_type is \"llama3\": scaled frequencies are not supported");
  refused_with("llama", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}},
               "rope_scaling.type is \"linear\"");
  refused_with("llama", "rope_parameters",
               {{"rope_theta", 5000.0}, {"rope_type", "yarn"}, {"factor", 4.0}},
               "rope_parameters.rope_type is \"yarn\": scaled frequencies are not supported");
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    refused_with("llama", object, {{"rope_type", "default"}, {"type", "linear"}, {"factor", 2.0}},
                 std::string(object) + ".type is \"linear\": scaled frequencies are not supported");
  }
  refused_with(
      "llama", "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}},
      "rope_parameters.rope_theta is 500000.0, but outside of rope_parameters rope_theta is 5000");
  refused_with("llama", "quantization_config", json::object(), "quantization_config is an object");
  refused_with("mixtral", "sliding_window", 16, "sliding_window is 16");
  refused_with("glm4_moe", "n_group", 2, "n_group is 2");
  refused_with("qwen3_moe", "decoder_sparse_step", 2, "decoder_sparse_step is 2: only the first");
  for (const json& blocks : {json{1}, json{0, 0}, json{0, 2}, json{0, 1, 2, 3}, json{-1}}) {
    refused_with("qwen3_moe", "mlp_only_layers", blocks, "only the first blocks may be dense");
  }
  refused_with("glm4_moe", "partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5");
  refused_with("glm4_moe", "partial_rotary_factor", "(absent)", "partial_rotary_factor is absent");
  refused_with("llama", "partial_rotary_factor", 0.25, "partial_rotary_factor is 0.25");
  refused_with(
      "llama", "rope_scaling", {{"rope_type", "default"}, {"rope_theta", 500000.0}},
      "rope_scaling.rope_theta is 500000.0, but outside of rope_scaling rope_theta is 5000");
  refused_with("glm4_moe", "rope_scaling",
               {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
               "rope_scaling.partial_rotary_factor is 0.5, but outside of rope_scaling");
  for (const char* name : {"llama", "qwen3", "mixtral", "qwen3_moe", "glm4_moe"}) {
    refused_with(name, "rope_parameters",
                 {{"rope_theta", 5000.0}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
                 "rope_parameters.partial_rotary_factor is 0.5: positions must rotate whole heads");
  }
}

TEST_CASE("fields are found where newer files store them") {
  const Damaged model("llama");
  model.change([](json& config) {
    config.erase("rope_theta");
    config.erase("rope_scaling");
    config["rope_parameters"] = {{"rope_theta", 5000.0}, {"rope_type", "default"}};
  });
  REQUIRE(imported(model.path, model.folder / "run").config.model.rope_theta == 5000.0);
  const Damaged mixture("qwen3_moe");
  mixture.change([](json& config) {
    config["num_local_experts"] = config["num_experts"];
    config.erase("num_experts");
  });
  REQUIRE(imported(mixture.path, mixture.folder / "run").config.model.moe->experts == 6);
}

TEST_CASE("Llama folders of before rope_theta have its class's default") {
  const Damaged model("llama");
  model.change([](json& config) { config.erase("rope_theta"); });
  REQUIRE(imported(model.path, model.folder / "run").config.model.rope_theta == 10000.0);
}

TEST_CASE("a rope_theta that only rope_scaling has is refused, one in both places is read") {
  const Damaged model("llama");
  const auto with = [&](const json& outside) {
    model.change([&](json& config) {
      config["rope_theta"] = outside;
      config["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
    });
  };
  with(nullptr);  // transformers 5 reads 500000, and 4 its class's default
  model.refused(
      "rope_scaling.rope_theta is 500000.0, but outside of rope_scaling rope_theta is "
      "10000");
  with(500000);
  REQUIRE(imported(model.path, model.folder / "run").config.model.rope_theta == 500000.0);
}

TEST_CASE("rope_parameters beside a rope_scaling, which transformers 5 reads, must agree with it") {
  const Damaged model("llama");
  model.change([](json& config) {
    config.erase("rope_theta");
    config["rope_scaling"] = {{"rope_type", "default"}};
    config["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  });
  model.refused("rope_parameters.rope_theta is 500000.0, but outside of rope_parameters");
}

TEST_CASE("a factor of rope_scaling without its type is refused") {
  const Damaged model("llama");
  model.change([](json& config) { config["rope_scaling"] = {{"factor", 2.0}}; });
  model.refused("rope_scaling.factor is 2.0: scaled frequencies are not supported");
}

TEST_CASE("a head beside a tied embedding must be that embedding") {
  const Damaged model("llama");
  model.change([](json& config) { config["tie_word_embeddings"] = true; });
  model.refused("tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens");
  const std::string file = model.file("model.safetensors");
  std::string bytes = read_file(file);
  {
    const SafetensorsFile weights(file);
    const auto& head = *weights.find("lm_head.weight");
    const auto& embedding = *weights.find("model.embed_tokens.weight");
    REQUIRE(head.bytes == embedding.bytes);
    const std::string same = bytes.substr(size_t(embedding.begin), size_t(embedding.bytes));
    bytes.replace(size_t(head.begin), same.size(), same);
  }
  write_file_atomic(file, bytes);
  const Imported run = imported(model.path, model.folder / "run");
  REQUIRE(run.config.model.tie_embeddings);
  REQUIRE(run.notes.at(0).find("were left out, e.g. lm_head.weight") != std::string::npos);
}

TEST_CASE("a sliding window as long as the context bounds the sequence") {
  const Damaged model("mixtral");
  model.change([](json& config) { config["sliding_window"] = 64; });
  model.refused("sliding_window is 64, but run.sequence is 256", {"run.sequence=256"});
  const std::string run = model.folder / "run";
  REQUIRE(imported(model.path, run).config.run.sequence == 64);
  REQUIRE(imported_facts(run).window == 64);
  require_within_window(run, 64, "--context");
  expect_error([&] { require_within_window(run, 65, "--context"); },
               "--context is 65, but the model was imported with a sliding window of 64");
}

TEST_CASE("a sliding window that is switched off bounds nothing") {
  const Damaged model("qwen3");
  model.change([](json& config) { config["sliding_window"] = 16; });
  const std::string run = model.folder / "run";
  imported(model.path, run, {"run.sequence=256"});
  REQUIRE(imported_facts(run).window == 0);
  require_within_window(run, 1 << 20, "--context");
}

TEST_CASE("weights that do not match config.json are refused") {
  {
    const Damaged model("glm4_moe");
    fs::remove(model.file("model-00002-of-00003.safetensors"));
    model.refused("model-00002-of-00003.safetensors");
  }
  {
    const Damaged model("glm4_moe");
    write_file_atomic(model.file("model.safetensors.index.json"), "{\"weight_map\": 3}");
    model.refused("it has no weight_map");
  }
  {
    const Damaged model("glm4_moe");
    write_file_atomic(model.file("model.safetensors.index.json"),
                      R"({"weight_map": {"lm_head.weight": "../model.safetensors"}})");
    model.refused("tensor lm_head.weight is not in a file of this folder");
  }
  {
    const Damaged model("llama");
    write_file_atomic(model.file("model.safetensors.index.json"),
                      R"({"weight_map": {"lost": "model.safetensors"}})");
    model.refused("expects in model.safetensors a tensor lost that it lacks");
  }
  {
    const Damaged model("llama");
    fs::remove(model.file("model.safetensors"));
    model.refused("holds neither model.safetensors nor");
  }
  {
    const Damaged model("llama");
    fs::copy(model.file("model.safetensors"), model.file("model-00001-of-00001.safetensors"));
    write_file_atomic(
        model.file("model.safetensors.index.json"),
        R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})");
    model.refused("holds model.safetensors, and model.safetensors.index.json with other files");
  }
  {
    const Damaged model("llama");
    std::string bytes = read_file(model.file("model.safetensors"));
    bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
    write_file_atomic(model.file("model.safetensors"), bytes);
    model.refused("is nan");
  }
  {
    const Damaged model("glm4_moe");
    model.refused("has selection biases", {"model.moe.router.bias_rate=0"});
    model.refused("fixes the model", {"model.layers=1"});
    model.refused("fixes the model", {"model.moe.experts=7"});
  }
}

TEST_CASE("a tokenizer must fit the vocabulary, and an unsupported one is not copied") {
  Vocabulary vocabulary;
  vocabulary.bytes.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.bytes[size_t(gpt2_byte_id(uint8_t(byte)))] = std::string(1, char(byte));
  }
  vocabulary.bytes.push_back(std::string(kEndOfText));
  vocabulary.special = {256};
  const Damaged model("llama");
  write_tokenizer_json(Tokenizer(vocabulary), model.file("tokenizer.json"));
  model.refused("has 257 tokens, config.json vocab_size 64");
  fs::rename(model.file("tokenizer.json"), model.folder / "elsewhere.json");
  model.refused("elsewhere.json has 257 tokens, config.json vocab_size 64",
                {"data.tokenizer=" + (model.folder / "elsewhere.json")});

  write_file_atomic(model.file("tokenizer.json"), R"({"model": {"type": "Unigram"}})");
  const Imported without = imported(model.path, model.folder / "without");
  REQUIRE(without.config.data.tokenizer.empty());
  REQUIRE(without.notes.at(0).find("no tokenizer was imported") != std::string::npos);
  REQUIRE(left_tokenizer(model.folder / "without").find("model.type is \"Unigram\"") !=
          std::string::npos);
}

TEST_CASE("data whose tokenizer is known is refused for a model whose own cannot be read") {
  const Damaged model("llama");
  const std::string unread = ", and the model's tokenizer cannot be compared with it: ";
  write_file_atomic(model.folder / "words.json", "{}");
  const std::string words = "data.tokenizer=" + (model.folder / "words.json");
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    write_file_atomic(model.file(name), R"({"model": {"type": "Unigram"}})");
    const std::string its = unread + model.file(name) + ": ";
    model.refused("words.json" + its, {words});
    fs::remove(model.file(name));
  }
}

TEST_CASE("for a pipe among the files of a model nobody waits") {
  for (const char* name :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"}) {
    CAPTURE(name);
    const Damaged model("llama");
    const std::string pipe = model.file(name);
    fs::remove(pipe);
    REQUIRE(mkfifo(pipe.c_str(), 0644) == 0);
    const std::string says = "it is a pipe or a device";
    if (std::string(name) != "tokenizer.json") {
      model.refused(pipe + ": " + says);
    } else {
      const Imported without = imported(model.path, model.folder / "run");
      REQUIRE(without.notes.at(0).find(says) != std::string::npos);
    }
  }
}

TEST_CASE("a tokenizer without <|endoftext|> is not copied, and the model goes without") {
  Vocabulary vocabulary;
  vocabulary.bytes.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.bytes[size_t(gpt2_byte_id(uint8_t(byte)))] = std::string(1, char(byte));
  }
  vocabulary.bytes.push_back("</s>");
  vocabulary.special = {256};
  const Damaged model("llama");
  write_tokenizer_json(Tokenizer(vocabulary), model.file("tokenizer.json"));
  const Imported without = imported(model.path, model.folder / "without");
  REQUIRE(without.config.data.tokenizer.empty());
  REQUIRE_FALSE(fs::exists(model.folder / "without/tokenizer.json"));
  REQUIRE(without.notes.at(0).find("it has no special token <|endoftext|>") != std::string::npos);
  REQUIRE(left_tokenizer(model.folder / "without") == "it has no special token <|endoftext|>");
}

TEST_CASE("blocks that predict further tokens are dropped with a note") {
  const Damaged model("glm4_moe");
  model.change([](json& config) {
    config["num_hidden_layers"] = 1;
    config["num_nextn_predict_layers"] = 1;
  });
  const Imported run = imported(model.path, model.folder / "run");
  REQUIRE(run.config.model.layers == 1);
  REQUIRE(run.notes.at(0).find("were left out, e.g. model.layers.1.") != std::string::npos);
}

TEST_CASE("as many of these blocks are dropped as config.json says") {
  const Damaged model("glm4_moe");
  // A file with one number, of block 2.
  std::string header =
      R"({"model.layers.2.eh_proj.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t bytes = header.size();
  write_file_atomic(
      model.file("further.safetensors"),
      std::string(reinterpret_cast<const char*>(&bytes), 8) + header + std::string(4, '\0'));
  json index = read_json_object(model.file("model.safetensors.index.json"), "");
  index["weight_map"]["model.layers.2.eh_proj.weight"] = "further.safetensors";
  write_file_atomic(model.file("model.safetensors.index.json"), index.dump());
  const auto predicting = [&](int64_t blocks) {
    model.change([&](json& config) {
      config["num_hidden_layers"] = 1;
      config["num_nextn_predict_layers"] = blocks;
    });
  };
  predicting(0);
  model.refused("has a tensor model.layers.1.");
  predicting(1);
  model.refused("has a tensor model.layers.2.eh_proj.weight, which is not part of");
  predicting(2);
  const Imported run = imported(model.path, model.folder / "run");
  REQUIRE(run.config.model.layers == 1);
}

TEST_CASE("random damage gives an error or a run, not a crash") {
  const TempFolder folder;
  int errors = 0, runs = 0;
  RandomSequence random({9, stream_id("damage"), 0});
  for (const std::string name : {"llama", "glm4_moe"}) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(fixture(name))) {
      files[entry.path().filename().string()] = read_file(entry.path().string());
    }
    files.erase("expected.safetensors");
    files.erase("generation_config.json");
    for (int round = 0; round < 150; ++round) {
      const std::string model = folder / "model", run = folder / "run";
      fs::remove_all(model);
      fs::remove_all(run);
      make_folders(model);
      const size_t chosen = random.below(uint32_t(files.size()));
      size_t at = 0;
      for (auto [file, bytes] : files) {
        if (at++ == chosen) {
          // Damages the beginning, where headers and texts are.
          const uint32_t reach = uint32_t(std::min<size_t>(bytes.size(), 3000));
          if (random.below(4) == 0) {
            bytes.resize(random.below(reach));
          } else {
            for (uint32_t n = 1 + random.below(3); n > 0; --n) {
              bytes[random.below(reach)] =
                  char(random.below(3) > 0 ? '0' + random.below(10) : random.below(256));
            }
          }
        }
        write_file_atomic(model + "/" + file, bytes);
      }
      try {
        imported(model, run);
        ++runs;
      } catch (const UserError& error) {
        REQUIRE_FALSE(error.hint().empty());
        ++errors;
      }
    }
  }
  INFO(errors << " errors, " << runs << " runs");
  REQUIRE(errors > 100);
  REQUIRE(runs > 0);
}

}  // namespace assay::test_bad_folders
