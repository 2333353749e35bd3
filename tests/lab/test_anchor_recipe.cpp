#include <map>
#include <string>
#include <vector>

#include "engine/config/yaml.h"
#include "lab/compare/anchor_recipe.h"
#include "tests/catch.h"
#include "tests/lab/run_records.h"

namespace assay::test_anchor_recipe {
namespace {

std::map<std::string, Match> matches(const RunRecord& run) {
  std::map<std::string, Match> by_name;
  for (const RecipeItem& item : anchor_recipe(run)) by_name[item.what] = item.match;
  return by_name;
}

RunRecord speedrun_dense() {
  RunRecord run = hand_made({.name = "dense"});
  run.config = load_config("models/presets/speedrun/dense.yaml");
  run.audit = audit(run.config);
  run.recipe = "bf16";
  run.data_sha256 = {{"/data/fineweb_train_000001.bin", "aa"},
                     {"/data/fineweb_val_000000.bin", "bb"}};
  return run;
}

}  // namespace

TEST_CASE("the speedrun's dense model against the anchor's recipe") {
  const std::map<std::string, Match> found = matches(speedrun_dense());
  for (const char* same : {"layers", "width", "heads", "key-value heads", "head width", "QK-norm",
                           "attention branch", "products", "optimizer", "learning rate", "beta1",
                           "beta2", "weight decay", "tokens per step", "steps", "warm-up",
                           "warm-down", "validated every", "validation tokens"}) {
    INFO(same);
    REQUIRE(found.at(same) == Match::kYes);
  }
  for (const char* differs :
       {"vocabulary", "embedding and head", "norm", "norm eps", "RoPE base", "FFN", "init",
        "decayed", "gradient", "sequence", "decay", "parameters"}) {
    INFO(differs);
    REQUIRE(found.at(differs) == Match::kNo);
  }
  // Equal size and name do not prove a match.
  REQUIRE(found.at("tokenizer") == Match::kUnknown);
  REQUIRE(found.at("data") == Match::kUnknown);
  REQUIRE(anchor_obstacle(speedrun_dense()) == "");
}

TEST_CASE("items follow the configuration") {
  RunRecord run = speedrun_dense();
  run.config.model.tie_embeddings = true;
  run.config.model.norm_eps = 1e-6;
  run.config.model.rope_theta = 10000;
  run.config.run.sequence = 1024;
  run.config.schedule.decay = DecayShape::kLinear;
  run.config.optimizer.lr = 1e-3;
  std::map<std::string, Match> found = matches(run);
  for (const char* same : {"embedding and head", "norm eps", "RoPE base", "sequence", "decay"}) {
    INFO(same);
    REQUIRE(found.at(same) == Match::kYes);
  }
  REQUIRE(found.at("learning rate") == Match::kNo);
  run.config.model.vocab_size = 4096;
  found = matches(run);
  REQUIRE(found.at("tokenizer") == Match::kNo);
  REQUIRE(anchor_obstacle(run).find("vocabulary 4,096") != std::string::npos);
  run.data_sha256 = {{"/data/stories_train_0.bin", "aa"}};
  REQUIRE(matches(run).at("data") == Match::kNo);
}

TEST_CASE("losses of another validation text are not compared with the anchor's") {
  RunRecord run = speedrun_dense();
  run.config.data.reference = "any";
  run.config.data.train = {"/data/*_train_*.bin"};
  run.config.data.val = {"/data/*_val_*.bin"};
  REQUIRE(anchor_obstacle(run) == "");
  run.data_sha256 = {{"/data/web_train_0.bin", "aa"}, {"/data/fineweb_val_000000.bin", "bb"}};
  REQUIRE(anchor_obstacle(run) == "");  // trained on other text
  run.data_sha256 = {{"/data/fineweb_train_0.bin", "aa"}, {"/data/web_val_0.bin", "bb"}};
  REQUIRE(anchor_obstacle(run) == "other validation data: web_val_0.bin");
  run.config.data.reference = "kjj0/fineweb10B-gpt2";  // training has checked it
  REQUIRE(anchor_obstacle(run) == "");
}

}  // namespace assay::test_anchor_recipe
