// The horizon of every contract for every model, and the confounds between models and in ladders.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/config/schedule.h"
#include "models/audit/family.h"
#include "models/audit/ladder.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"
#include "tests/model/speedrun_family.h"

namespace assay::test_family {
namespace {

std::vector<NamedConfig> speedrun() {
  std::vector<NamedConfig> models{{"dense", speedrun_dense()},
                                  {"moe-64", speedrun_moe(64, 6, 2, 1)},
                                  {"moe-256", speedrun_moe(256, 7, 1, 0)}};
  for (NamedConfig& m : models) m.config.contract = {};
  return models;
}

std::vector<std::string> names_of(const std::vector<Confound>& found) {
  std::vector<std::string> names;
  for (const Confound& c : found) names.push_back(c.name);
  return names;
}

bool has(const std::vector<Confound>& found, const std::string& name, const std::string& text) {
  return std::any_of(found.begin(), found.end(), [&](const Confound& c) {
    return c.name == name && c.text.find(text) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("horizons of the speedrun family, derived from its dense model") {
  const auto json = family_json(speedrun(), {});
  REQUIRE(json["reference"] == "dense");
  const auto steps = [&](const char* kind, const char* model) {
    return json["contracts"][kind]["models"][model]["steps"].get<int64_t>();
  };
  REQUIRE(json["contracts"]["totalDN"]["coefficient"] == 26.24021755633395);
  REQUIRE(steps("steps", "moe-256") == 9536);
  REQUIRE(steps("active-width", "moe-64") == 9536);
  REQUIRE(steps("activeDN", "dense") == 9536);
  REQUIRE(steps("activeDN", "moe-64") == 9563);
  REQUIRE(steps("activeDN", "moe-256") == 9654);
  REQUIRE(steps("totalDN", "moe-64") == 37813);
  REQUIRE(steps("totalDN", "moe-256") == 141963);
  REQUIRE(steps("flops", "dense") == 9536);
  REQUIRE(steps("flops", "moe-256") == 9406);
  REQUIRE(!json["contracts"].contains("seconds"));  // the duration of a step is unknown
  const auto& moe = json["contracts"]["activeDN"]["models"]["moe-256"];
  REQUIRE(moe["tokens"] == 9654.0 * 524288);
  REQUIRE(moe["epochs"].is_null());
}

TEST_CASE("coefficients, fractions, seconds and shared experts follow the options") {
  std::vector<NamedConfig> models = speedrun();
  models[0].config.contract.step_seconds = 0.15757;
  models[2].config.contract.step_seconds = 0.73301;
  AuditOptions options;
  options.coefficient = 8;
  options.fractions = {0.02, 0.2};
  options.shared = SharedExperts::kLeftOut;
  const auto json = family_json(models, options)["contracts"];
  const auto& total = json["totalDN"]["models"]["moe-256"];
  REQUIRE(total["steps"] == 43119);
  REQUIRE(total["2pct_steps"] == 863);
  REQUIRE(total["20pct_steps"] == 8624);
  REQUIRE(json["seconds"]["models"]["dense"]["steps"] == 9536);
  REQUIRE(json["seconds"]["models"]["moe-64"]["steps"].is_null());
  REQUIRE(json["seconds"]["models"]["moe-256"]["steps"] == 2049);  // 9536 * 0.15757 / 0.73301
}

TEST_CASE("a reference that leaves its shared experts out keeps its own steps") {
  std::vector<NamedConfig> models = speedrun();
  std::swap(models[0], models[1]);
  ContractConfig& contract = models[0].config.contract;
  contract.kind = ContractKind::kTotalDN;
  contract.coefficient = 8;
  const int64_t in_total = planned_steps(models[0].config);
  contract.shared_in_total = false;
  const int64_t own = planned_steps(models[0].config);
  REQUIRE(own < in_total);
  const auto total = family_json(models, {})["contracts"]["totalDN"];
  REQUIRE(total["models"]["moe-64"]["steps"] == own);
  REQUIRE(total["coefficient"].get<double>() == Approx(8).epsilon(1e-3));
  REQUIRE(total["shared_in_total"] == false);
  REQUIRE(family_table(models, {}).find(" tokens per parameter), shared experts left out") !=
          std::string::npos);
  // With 8 tokens per parameter asked for, as the table of the models has it.
  AuditOptions options;
  options.coefficient = 8;
  REQUIRE(family_json(models, options)["contracts"]["totalDN"]["models"]["moe-64"]["steps"] ==
          audit_json(models, options)["models"]["moe-64"]["totalDN"]["full_steps"]);
}

TEST_CASE("confounds are named with their values") {
  std::vector<NamedConfig> models = speedrun();
  auto found = confounds(models, {});
  REQUIRE(names_of(found) == std::vector<std::string>{"dense_layers", "experts", "branch_scale",
                                                      "router_share", "router_share"});
  REQUIRE(
      has(found, "experts", "moe-64 64 (6 chosen, 2 shared), moe-256 256 (7 chosen, 1 shared)"));
  REQUIRE(has(found, "dense_layers", "moe-64 1, moe-256 0"));
  REQUIRE(has(found, "router_share", "moe-256: 1.22% of P_active is the router (2,359,296)"));
  REQUIRE(confounds({models[0]}, {}).empty());

  std::vector<NamedConfig> sizes = {models[0], {"small", models[0].config}};
  sizes[1].config.model.layers = 10;
  sizes[1].config.model.hidden = 640;
  sizes[1].config.model.heads = sizes[1].config.model.kv_heads = 10;
  found = confounds(sizes, {});
  REQUIRE(has(found, "depth", "number of layers differs: dense 12, small 10"));
  REQUIRE(has(found, "width", "hidden width differs: dense 768, small 640"));

  models.pop_back();
  models[1].config.model.moe->expert_ffn = 256;
  models[1].config.optimizer.lr = 0.5;
  models[1].config.run.batch_tokens = 262144;
  models[1].config.run.sequence = 1024;
  models[1].config.data.tokenizer = "/other.json";
  models[1].config.data.train = {"/other.bin"};
  models[1].config.data.cache = "/elsewhere";  // the cache's path does not change the data
  models[1].config.run.threads = 3;
  found = confounds(models, {});
  REQUIRE(has(found, "active_width", "dense 3,072, moe-64 2,048"));
  REQUIRE(has(found, "optimizer", "optimizer.lr differs: dense 0.001, moe-64 0.5"));
  REQUIRE(has(found, "batch", "524288, moe-64 262144"));
  REQUIRE(has(found, "sequence", "run.sequence"));
  REQUIRE(has(found, "tokenizer", "/other.json"));
  REQUIRE(has(found, "data", "/other.bin"));
  REQUIRE(found.size() == 8);  // including the router's share and the size of its branch
}

TEST_CASE("routed branches that begin with other sizes are a confound, by their gates") {
  std::vector<NamedConfig> models = speedrun();
  const auto text = [&] {
    for (const Confound& c : confounds(models, {}))
      if (c.name == "branch_scale") return c.text;
    return std::string();
  };
  const auto scales = [](const std::string& by_model) {
    return "routed branch at initialisation, relative to a dense FFN of its width: " + by_model +
           "; model.moe.router.gate_scale sets it";
  };
  for (const size_t i : {1, 2}) models[i].config.model.moe->shared = 0;
  RouterConfig &six = models[1].config.model.moe->router,
               &seven = models[2].config.model.moe->router;
  REQUIRE(text() == scales("dense 1, moe-64 0.167, moe-256 0.143"));  // 1 / K
  six.gate_scale = 6, seven.gate_scale = 7;
  REQUIRE(text().empty());
  // Not divided by their sum, they are the largest of E scores, which begin around 1/2 or 1/E.
  for (RouterConfig* router : {&six, &seven}) {
    router->normalize_gates = false;
    router->gate_scale = 2;
  }
  REQUIRE(text() == scales("dense 1, moe-64 1.45, moe-256 1.56"));
  six.score = seven.score = RouterScore::kSoftmax;
  REQUIRE(text() == scales("dense 1, moe-64 0.0734, moe-256 0.0242"));
}

TEST_CASE("shared experts count in the branch, and narrow the experts of one active width") {
  Config base = speedrun_moe(8, 2, 0, 0);
  base.contract = {};
  base.model.moe->expert_ffn = 96;
  const Rung rung = shared_rung(base, 1, LadderEqual::kWidth, 8);
  REQUIRE(rung.name == "s1");
  REQUIRE(rung.changes == "model: {moe: {shared: 1, expert_ffn: 64}}\n");
  REQUIRE(audit(rung.config).ffn_active_width == audit(base).ffn_active_width);
  std::vector<NamedConfig> models = {{"base", base}, {"s1", rung.config}};
  std::vector<Confound> found = recorded_confounds(models);
  // 2 (1/2)^2 + 1 of 3 equal parts, against 2 (1/2)^2 of 2.
  REQUIRE(has(found, "branch_scale",
              "routed and shared branch at initialisation, relative to a dense FFN of its width: "
              "base 0.5, s1 0.707; model.moe.router.gate_scale sets the routed part"));
  REQUIRE(has(found, "expert_width",
              "width of an expert differs: base 96 (768 stored), s1 64 (576 stored), so P_total "
              "does"));
  models[0].config.model.moe->router.gate_scale = std::sqrt(2.0);
  REQUIRE(!has(recorded_confounds(models), "branch_scale", ""));
  // What a study of experts, choices or widths varies has no such line.
  for (const auto& [experts, top_k, width] :
       {std::array{16, 2, 96}, std::array{16, 4, 48}, std::array{8, 4, 96}, std::array{8, 2, 48}}) {
    models[1] = {"other", base};
    MoeConfig& moe = *models[1].config.model.moe;
    moe.experts = experts, moe.top_k = top_k, moe.expert_ffn = width;
    REQUIRE(!has(recorded_confounds(models), "expert_width", ""));
  }
  models[1].config.model.moe->top_k = 4;  // twice the choices of half the width
  REQUIRE(
      has(recorded_confounds(models), "expert_width", "96 (768 stored), other 48 (384 stored)"));

  expect_error([&] { shared_rung(base, 3, LadderEqual::kWidth, 8); },
               "3 shared experts: from K = 2, S = 0, F = 96 the same active width needs F = 38.4");
  REQUIRE(shared_rung(base, 3, LadderEqual::kActive, 1).config.model.moe->expert_ffn == 38);
  REQUIRE(shared_rung(rung.config, 0, LadderEqual::kWidth, 8).config.model.moe->expert_ffn == 96);
}

TEST_CASE("the width of dense layers is named between mixtures that have such layers") {
  std::vector<NamedConfig> models = {{"narrow", speedrun_moe(8, 2, 0, 1)},
                                     {"wide", speedrun_moe(8, 2, 0, 1)},
                                     {"none", speedrun_moe(8, 2, 0, 0)},
                                     {"dense", speedrun_dense()}};
  models[0].config.model.ffn = 256, models[1].config.model.ffn = 1024;
  models[2].config.model.ffn = 512;
  REQUIRE(audit(models[0].config).total != audit(models[1].config).total);
  REQUIRE(has(recorded_confounds(models), "dense_width",
              "width of the dense layers before the experts differs: narrow 256, wide 1024"));
  REQUIRE(!has(recorded_confounds(models), "dense_width", "none"));
  for (const size_t i : {0, 1}) models[i].config.model.moe->first_dense_layers = 0;
  REQUIRE(!has(recorded_confounds(models), "dense_width", ""));
  models[1].config.model.moe->first_dense_layers = 1;  // the only one, beside a dense model
  REQUIRE(!has(recorded_confounds(models), "dense_width", ""));
}

TEST_CASE("a granularity ladder differs in the size of its branches, unless gate_scale keeps it") {
  Config base = speedrun_moe(64, 2, 2, 0);
  base.contract = {};
  base.model.moe->router.gate_scale = 1.5;
  const auto rungs = [&](RungGates gates) {
    std::vector<NamedConfig> models;
    for (const int64_t experts : {32, 64, 96, 192}) {
      const Rung rung = granularity_rung(base, experts, LadderEqual::kWidth, 8, gates);
      models.push_back({rung.name, rung.config});
    }
    return models;
  };
  const std::vector<NamedConfig> plain = rungs(RungGates::kOfBase);
  REQUIRE(has(confounds(plain, {}), "branch_scale", "e32 1.27, e64 0.884, e96 0.791, e192 0.729;"));
  const std::vector<NamedConfig> kept = rungs(RungGates::kKeepBranchScale);
  REQUIRE(!has(confounds(kept, {}), "branch_scale", ""));
  REQUIRE(kept[3].config.model.moe->router.gate_scale == 4.5);
  const Rung rung = granularity_rung(base, 96, LadderEqual::kWidth, 8, RungGates::kKeepBranchScale);
  REQUIRE(rung.changes ==
          "model: {moe: {experts: 96, top_k: 3, shared: 3, expert_ffn: 256, router: {gate_scale: "
          "2.25}}}\n");
}

TEST_CASE("confounds beyond the sizes: order of the data, architecture, routers, a whole section") {
  std::vector<NamedConfig> models = speedrun();
  models[1].config.model.moe = models[2].config.model.moe;  // one mixture twice
  const size_t before = confounds(models, {}).size();
  models[0].config.data.shuffle = false;
  models[0].config.model.qk_norm = true;
  models[0].config.optimizer.kind = OptimizerKind::kMuon;
  models[0].config.optimizer.muon.emplace();
  models[1].config.model.moe->router.bias_rate = 0.5;
  const auto found = confounds(models, {});
  REQUIRE(found.size() == before + 5);
  REQUIRE(has(found, "data_order", "data.shuffle differs: dense false, moe-64 true, moe-256 true"));
  REQUIRE(has(found, "architecture", "model.qk_norm differs: dense true, "));
  REQUIRE(has(found, "optimizer", "optimizer.muon differs: dense present, moe-64 absent, "));
  REQUIRE(has(found, "router", "model.moe.router.bias_rate differs: moe-64 0.5, moe-256 0.001"));
}

TEST_CASE("a dense FFN and routed experts that are stepped in two ways are a confound") {
  std::vector<NamedConfig> models = speedrun();
  models.pop_back();
  OptimizerConfig &dense = models[0].config.optimizer, &moe = models[1].config.optimizer;
  const auto texts = [&] {
    std::vector<std::string> all;
    for (const Confound& c : recorded_confounds(models)) {
      if (c.name == "optimizer" || c.name == "ffn_optimizer") all.push_back(c.name + ": " + c.text);
    }
    return all;
  };
  const std::string by_decay =
      "ffn_optimizer: decay of the second moment of the FFN differs: dense 0.95, moe-64 0.99; that "
      "of a mixture is its routed experts' (optimizer.expert_beta2)";
  REQUIRE(texts().empty());
  dense.expert_beta2 = moe.expert_beta2 = 0.99;  // of a family's file
  REQUIRE(texts() == std::vector{by_decay});
  dense.expert_beta2.reset();
  REQUIRE(texts() == std::vector{by_decay});
  dense.expert_beta2 = 0.99, dense.beta2 = 0.99;  // the decay of the other tensors
  REQUIRE(texts() ==
          std::vector<std::string>{"optimizer: optimizer.beta2 differs: dense 0.99, moe-64 0.95"});
  // Muon has no second moment, and its own rate is that of all its matrices.
  dense.beta2 = 0.95;
  moe.expert_beta2.reset();
  moe.kind = OptimizerKind::kMuon;
  REQUIRE(texts().size() == 1);
  REQUIRE(texts()[0].starts_with("optimizer: optimizer.kind differs: dense adamw, moe-64 muon; "));
  dense = moe;
  dense.expert_beta2 = 0.99;
  REQUIRE(texts().empty());
  dense.expert_lr = moe.expert_lr = 0.002;
  REQUIRE(texts() == std::vector<std::string>{
                         "ffn_optimizer: learning rate of the FFN differs: dense 0.001, moe-64 "
                         "0.002; that of a mixture is its routed experts' (optimizer.expert_lr)"});
  dense.muon.emplace().lr = 0.02;
  moe.muon.emplace().lr = 0.02;
  REQUIRE(texts().empty());

  dense = moe = OptimizerConfig{};
  dense.router_lr = 0.5;
  moe.expert_lr = moe.lr;
  REQUIRE(texts().empty());
  // Between mixtures these are fields like any other.
  models[0].config.model.moe = models[1].config.model.moe;
  moe.expert_beta2 = 0.99;
  REQUIRE(texts() == std::vector<std::string>{
                         "optimizer: optimizer.router_lr differs: dense 0.5, moe-64 absent",
                         "optimizer: optimizer.expert_beta2 differs: dense absent, moe-64 0.99"});
}

TEST_CASE("the line on the kind of the optimizer has what Muon takes beside the counted FLOPs") {
  std::vector<NamedConfig> models = speedrun();
  models.insert(models.begin(), {"adamw", speedrun_dense()});
  for (const size_t i : {1, 2, 3}) models[i].config.optimizer.kind = OptimizerKind::kMuon;
  // As docs/numerics.md has them.
  REQUIRE(has(recorded_confounds(models), "optimizer",
              "optimizer.kind differs: adamw adamw, dense muon, moe-64 muon, moe-256 muon; FLOPs "
              "of Muon, which are not counted, as a share of a step's: dense 0.39%, moe-64 1.3%, "
              "moe-256 4.9%"));
  models[2].config.optimizer.muon.emplace().steps = 50;
  models[3].config.run.batch_tokens = 2048;
  REQUIRE(has(recorded_confounds(models), "optimizer", ": dense 0.39%, moe-64 13%, moe-256 1262%"));
}

TEST_CASE("a warm-down that follows the warm-up follows it over other horizons, too") {
  Config base = speedrun_dense();
  base.contract = {};
  base.run.steps = 100;
  base.schedule = {.warmup = 20, .decay = DecayShape::kCosine};  // falls to the end by itself
  const auto decay_begin = [&](int64_t factor) {
    const Schedule schedule = make_schedule(horizon_rung(base, factor).config);
    REQUIRE(schedule.warmup == base.schedule.warmup);
    return schedule.decay_begin();
  };
  REQUIRE(make_schedule(base).decay_begin() == 20);
  REQUIRE(decay_begin(10) == 20);
  REQUIRE(horizon_rung(base, 10).changes ==
          "run: {steps: 1000}\nschedule: {warmup: 20, warmup_fraction: null, warmdown: 0, "
          "warmdown_fraction: null}\n");
  REQUIRE(recorded_confounds(
              {{"x1", horizon_rung(base, 1).config}, {"x10", horizon_rung(base, 10).config}})
              .empty());
  for (const DecayShape decay : {DecayShape::kCosine, DecayShape::kLinear}) {
    base.schedule = {.warmup = 20, .warmdown = 80, .decay = decay};
    REQUIRE(decay_begin(1) == 20);
    REQUIRE(decay_begin(10) == 20);
    base.schedule.warmdown = 30;  // after a plateau: its share
    REQUIRE(decay_begin(10) == 700);
    base.schedule = {.warmup = 20, .warmdown_fraction = 0.3, .decay = decay};
    REQUIRE(decay_begin(10) == 700);
  }
  base.schedule = {.warmup = 100};  // none
  REQUIRE(decay_begin(10) == 1000);
}

TEST_CASE("confounds of the attention: heads beside the width, but not heads that grow with it") {
  std::vector<NamedConfig> models = {{"a", speedrun_dense()}, {"b", speedrun_dense()}};
  const auto found_with = [&](int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim) {
    ModelConfig& m = models[1].config.model;
    m.hidden = hidden, m.heads = heads, m.kv_heads = kv_heads, m.head_dim = head_dim;
    const auto found = recorded_confounds(models);
    return found.empty() ? "" : found.back().name + ": " + found.back().text;
  };
  const std::string differs =
      "architecture: attention differs: a 12 heads of 64 with 12 key-value heads, b ";
  REQUIRE(found_with(768, 12, 12, 64) == "");  // as the first model's
  REQUIRE(found_with(768, 12, 4, 0) == differs + "12 heads of 64 with 4 key-value heads");
  REQUIRE(found_with(768, 6, 0, 0) == differs + "6 heads of 128 with 6 key-value heads");
  REQUIRE(found_with(768, 6, 0, 64) == differs + "6 heads of 64 with 6 key-value heads");
  REQUIRE(found_with(640, 10, 0, 0) == "width: hidden width differs: a 768, b 640");
  models[0].config.model.kv_heads = 6;
  REQUIRE(found_with(640, 10, 5, 0) == "width: hidden width differs: a 768, b 640");
}

TEST_CASE("of many models a confound has the values, not every name") {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
  REQUIRE(values_by_model({"a", "b"}, {"1", "1"}) == "a 1, b 1");
  REQUIRE(values_by_model(names, {"1", "2", "1", "1", "1", "3"}) == "1 (4 models), 2 (b), 3 (f)");
  REQUIRE(values_by_model(names, {"1", "2", "3", "4", "5", "6"}) ==
          "1 (a), 2 (b), 3 (c), 4 (d), and 2 other values");
}

TEST_CASE("epochs come from the headers of the shards") {
  const TempFolder folder;
  write_shard(folder / "a.bin", counting(0, 1000, 50), 50);
  write_shard(folder / "b.bin", counting(0, 1025, 50), 50);
  Config c;
  c.run.batch_tokens = 256;
  c.run.sequence = 64;
  REQUIRE(!steps_per_epoch(c));
  c.data.train = {folder / "*.bin"};
  c.data.shuffle = false;
  REQUIRE(steps_per_epoch(c) == 3 + 4);
  c.data.shuffle = true;  // (999 / 64) + (1024 / 64) sequences, four a step
  REQUIRE(steps_per_epoch(c) == 7.75);
  REQUIRE(epoch_tokens(c) == 7 * 256 + 192);
  c.data.train = {folder / "gone.bin"};
  REQUIRE(!steps_per_epoch(c));
  REQUIRE(!epoch_tokens(c));
  c.data.train.clear();
  c.data.synth = SynthConfig{.train_tokens = 25600};
  REQUIRE(steps_per_epoch(c) == 99.75);

  std::vector<NamedConfig> models = speedrun();
  for (NamedConfig& m : models) m.config.data.synth = SynthConfig{.train_tokens = 10'000'000'000};
  const auto json = family_json(models, {});
  // 141963 steps of 524288 tokens.
  REQUIRE(json["contracts"]["totalDN"]["models"]["moe-256"]["epochs"].get<double>() ==
          Approx(7.443).epsilon(1e-3));
  std::vector<std::string> epochs;
  for (const auto& c : json["confounds"]) {
    if (c["name"] == "epochs") epochs.push_back(c["text"]);
  }
  REQUIRE(epochs.size() == 1);
  REQUIRE(epochs[0] ==
          "totalDN: the data is seen more than once: moe-64 1.98 times, moe-256 7.44 times");
}

TEST_CASE("the table has a row for every contract and a line for every confound") {
  const std::string text = family_table(speedrun(), {});
  for (const char* part : {"with dense as the reference", "141,963", "9,654", "9,406",
                           "confound: dense layers", "activeDN (26.2402 tokens per parameter)"}) {
    INFO(part << "\n" << text);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

}  // namespace assay::test_family
