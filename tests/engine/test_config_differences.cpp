// How two configurations differ: from the defaults, for a run that goes on, and from rank to rank.
#include <functional>

#include "engine/config/collapse_auto.h"
#include "engine/config/differences.h"
#include "engine/config/spelling.h"
#include "engine/config/text.h"
#include "tests/catch.h"

namespace assay::test_config_differences {

TEST_CASE("differences from the default configuration are listed") {
  REQUIRE(differences_from_default(Config{}).empty());
  Config c;
  c.optimizer.lr = 0.002;
  c.model.moe.emplace().top_k = 1;
  REQUIRE(differences_from_default(c) ==
          std::vector<std::string>{"model.moe.top_k = 1 (default 2)",
                                   "optimizer.lr = 0.002 (default 0.001)"});
  c.model.moe->top_k = 2;
  c.optimizer.muon.emplace();
  REQUIRE(differences_from_default(c) ==
          std::vector<std::string>{"model.moe = present (default absent)",
                                   "optimizer.lr = 0.002 (default 0.001)",
                                   "optimizer.muon = present (default absent)"});
}

TEST_CASE("which fields a resumed run may change") {
  struct Row {
    const char* what;
    void (*change)(Config&);
    int64_t done;
    const char* refused;  // "" = allowed
  };
  const Row rows[] = {
      {"nothing", [](Config&) {}, 50, ""},
      {"intervals",
       [](Config& c) {
         c.run.log_every = 7;
         c.run.checkpoint_every = 3;
         c.run.keep_checkpoints = 9;
         c.eval.every = 5;
         c.run.threads = 1;
       },
       50, ""},
      {"more steps before the decay", [](Config& c) { c.run.steps = 200; }, 80, ""},
      {"more steps, one into the decay", [](Config& c) { c.run.steps = 200; }, 81, ""},
      {"more steps, two into the decay", [](Config& c) { c.run.steps = 200; }, 82,
       "run.steps: 100 -> 200"},
      {"fewer steps than done", [](Config& c) { c.run.steps = 40; }, 50, "run.steps: 100 -> 40"},
      {"seed", [](Config& c) { c.run.seed = 2; }, 1, "run.seed: 1 -> 2"},
      {"state of the optimizer", [](Config& c) { c.optimizer.state = StateFormat::kBf16; }, 1,
       "optimizer.state: fp32 -> bf16"},
      {"kind of the optimizer", [](Config& c) { c.optimizer.kind = OptimizerKind::kMuon; }, 1,
       "optimizer.kind: adamw -> muon"},
      {"micro-batch", [](Config& c) { c.run.micro_batch = 4; }, 1, "run.micro_batch: 8 -> 4"},
      {"as many key-value heads as heads", [](Config& c) { c.model.kv_heads = 4; }, 1, ""},
      {"fewer", [](Config& c) { c.model.kv_heads = 2; }, 1, "model.kv_heads: 0 -> 2"},
      {"the width that heads have anyway", [](Config& c) { c.model.head_dim = 64; }, 1, ""},
      {"another width of heads", [](Config& c) { c.model.head_dim = 32; }, 1,
       "model.head_dim: 0 -> 32"},
      {"width of a block that is there", [](Config& c) { c.model.ffn = 512; }, 1,
       "model.ffn: 768 -> 512"},
      {"dense to sparse", [](Config& c) { c.model.moe.emplace(); }, 1,
       "model.moe: absent -> present"},
      {"moved data", [](Config& c) { c.data.train = {"/elsewhere/t.bin"}; }, 1, ""},
      {"other data", [](Config& c) { c.data.train = {"/data/u.bin"}; }, 1,
       "data.train: [/data/t.bin] -> [/data/u.bin]"},
      {"other weights",
       [](Config& c) {
         c.data.mixture = {0.7, 0.3};
       },
       1, "data.mixture: absent -> [0.7, 0.3]"},
      {"another text of the losses by source", [](Config& c) { c.eval.source_tokens = 512; }, 1,
       "eval.source_tokens: 0 -> 512"},
      {"warm-up", [](Config& c) { c.schedule.warmup = 5; }, 1, "schedule.warmup: 4 -> 5"},
      {"the same warm-up as a share", [](Config& c) { c.schedule.warmup_fraction = 0.04; }, 1, ""},
      {"a longer one", [](Config& c) { c.schedule.warmup_fraction = 0.05; }, 1,
       "schedule.warmup_fraction: absent -> 0.05"},
      {"a longer warm-down that has not begun", [](Config& c) { c.schedule.warmdown = 50; }, 51,
       ""},
      {"one that has", [](Config& c) { c.schedule.warmdown = 50; }, 52,
       "schedule.warmdown: 20 -> 50"},
      {"another decay, before it", [](Config& c) { c.schedule.decay = DecayShape::kCosine; }, 80,
       ""},
      {"what stops a collapse",
       [](Config& c) { c.telemetry.collapse_stop = CollapseStopConfig{.at_least = 0.9}; }, 50, ""},
      {"the calibrated rule", [](Config& c) { c.telemetry.collapse_stop = collapse_auto(); }, 50,
       ""},
      {"contract and landings",
       [](Config& c) {
         c.contract.kind = ContractKind::kFlops;
         c.contract.coefficient = 1e15;
         c.contract.landings = std::vector<double>{0.5};
       },
       50, ""},
  };
  Config before;
  before.run.steps = 100;
  before.schedule = {.warmup = 4, .warmdown = 20};
  before.data.train = {"/data/t.bin"};
  for (const Row& row : rows) {
    INFO(row.what);
    Config now = before;
    row.change(now);
    const std::vector<FieldDifference> found = result_changing_differences(before, now, row.done);
    if (std::string(row.refused).empty()) {
      REQUIRE(found.empty());
    } else {
      REQUIRE(found.size() == 1);
      REQUIRE_THAT(found[0].text(), Catch::Matchers::StartsWith(row.refused));
    }
  }
}

TEST_CASE("a run that goes on keeps the spelling of what means the same") {
  Config begun;
  begun.model.kv_heads = 4;
  begun.optimizer.router_lr = begun.optimizer.lr;
  Config now;
  now.model.head_dim = 64;
  now.optimizer.expert_lr = 2 * now.optimizer.lr;
  keep_spelling(begun, now);
  REQUIRE(now.model.kv_heads == 4);
  REQUIRE(now.model.head_dim == 0);
  REQUIRE(now.optimizer.router_lr == begun.optimizer.lr);
  REQUIRE(now.optimizer.expert_lr == 2 * now.optimizer.lr);  // another value stays, to be refused

  begun = {};
  begun.model.heads = 8;
  now = begun;
  now.model.heads = 16;
  now.model.kv_heads = 8;
  keep_spelling(begun, now);
  REQUIRE(now.model.kv_heads == 8);  // 0 would be 16
}

TEST_CASE("the width of dense blocks that a model has none of may differ on resume") {
  Config before;
  before.model.moe.emplace();
  Config now = before;
  now.model.ffn = 512;
  REQUIRE(result_changing_differences(before, now, 1).empty());
  before.model.moe->first_dense_layers = now.model.moe->first_dense_layers = 1;
  REQUIRE(result_changing_differences(before, now, 1).size() == 1);
}

TEST_CASE("a resumed run may write a default out") {
  struct Row {
    void (*change)(Config&);
    const char* refused;  // "" = allowed
  };
  const Row rows[] = {
      {[](Config& c) { c.model.moe->router.bias_rule = BiasRule::kSign; }, ""},
      {[](Config& c) { c.model.moe->router.bias_rule = BiasRule::kProportional; },
       "model.moe.router.bias_rule: absent -> proportional"},
      {[](Config& c) { c.model.moe->router.bias_steps = 100; }, ""},
      {[](Config& c) { c.model.moe->router.bias_steps = 50; }, "model.moe.router.bias_steps: "},
      {[](Config& c) { c.model.moe->router.z_alpha = 0.5; }, "model.moe.router.z_alpha: "},
      {[](Config& c) { c.optimizer.router_lr = 0.001; }, ""},
      {[](Config& c) { c.optimizer.router_lr = 0.002; }, "optimizer.router_lr: absent -> 0.002"},
      {[](Config& c) { c.optimizer.expert_lr = 0.001; }, ""},
      {[](Config& c) { c.optimizer.expert_lr = 0.002; }, "optimizer.expert_lr: absent -> 0.002"},
      {[](Config& c) { c.optimizer.expert_beta2 = 0.95; }, ""},
      {[](Config& c) { c.optimizer.expert_beta2 = 0.9; }, "optimizer.expert_beta2: absent -> 0.9"},
      {[](Config& c) { c.optimizer.muon.emplace(); }, ""},
      {[](Config& c) { c.optimizer.muon.emplace().lr = 0.001; }, ""},
      {[](Config& c) { c.optimizer.muon.emplace().weight_decay = 0.1; }, ""},
      {[](Config& c) { c.optimizer.muon.emplace().lr = 0.002; },
       "optimizer.muon: absent -> present"},
      {[](Config& c) { c.optimizer.lr = 0.002; }, "optimizer.lr: 0.001 -> 0.002"},
  };
  Config before;
  before.optimizer.kind = OptimizerKind::kMuon;
  before.model.moe.emplace();
  for (const Row& row : rows) {
    Config now = before;
    row.change(now);
    for (const bool back : {false, true}) {
      INFO(row.refused << (back ? " back" : ""));
      const std::vector<FieldDifference> found = back ? result_changing_differences(now, before, 1)
                                                      : result_changing_differences(before, now, 1);
      REQUIRE(found.size() == (std::string(row.refused).empty() ? 0 : 1));
      if (!found.empty() && !back)
        REQUIRE_THAT(found[0].text(), Catch::Matchers::StartsWith(row.refused));
    }
  }
  // The experts' rate is no longer that of the other matrices.
  before.optimizer.expert_lr = 0.003;
  Config now = before;
  now.optimizer.muon.emplace().lr = 0.001;
  REQUIRE(result_changing_differences(before, now, 1).size() == 1);
}

TEST_CASE("ranks differ in nothing but what belongs to a machine") {
  struct Row {
    const char* what;
    std::function<void(Config&)> change;
    const char* difference;  // "": they may
  };
  const std::vector<Row> rows = {
      {"nothing", [](Config&) {}, ""},
      {"threads", [](Config& c) { c.run.threads = 3; }, ""},
      {"cache", [](Config& c) { c.data.cache = "/fast/disk"; }, ""},
      {"folder of the data", [](Config& c) { c.data.train = {"/fast/t.bin"}; }, ""},
      {"other data", [](Config& c) { c.data.train = {"/data/u.bin"}; }, "data.train: "},
      {"steps", [](Config& c) { c.run.steps = 101; }, "run.steps: 100 -> 101"},
      {"recipe", [](Config& c) { c.precision.recipe = "mxfp8"; }, "precision.recipe: "},
      {"log", [](Config& c) { c.run.log_every = 2; }, "run.log_every: 1 -> 2"},
      {"checkpoints", [](Config& c) { c.run.checkpoint_every = 9; }, "run.checkpoint_every: "},
      {"parts", [](Config& c) { c.parallel.parts = 2; }, "parallel.parts: 0 -> 2"},
      {"a section",
       [](Config& c) { c.telemetry.collapse_stop = CollapseStopConfig{.at_least = 0.9}; },
       "telemetry.collapse_stop: absent -> present"},
      {"samples", [](Config& c) { c.eval.samples = SamplesConfig{}; }, "eval.samples: absent -> "},
  };
  Config first;
  first.run.steps = 100;
  first.data.train = {"/data/t.bin"};
  for (const Row& row : rows) {
    INFO(row.what);
    Config other = first;
    row.change(other);
    const std::vector<FieldDifference> found = differences_of_ranks(first, other);
    if (std::string(row.difference).empty()) {
      REQUIRE(found.empty());
    } else {
      REQUIRE(found.size() == 1);
      REQUIRE_THAT(found[0].text(), Catch::Matchers::StartsWith(row.difference));
    }
  }
}

}  // namespace assay::test_config_differences
