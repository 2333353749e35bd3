// The audit against published counts, exactly, and against a count by hand.
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "models/audit/audit_report.h"
#include "models/parameters/table.h"
#include "tests/catch.h"
#include "tests/model/speedrun_family.h"

namespace assay::test_audit {

namespace {

using Json = nlohmann::ordered_json;

std::vector<NamedConfig> speedrun() {
  return {{"dense", speedrun_dense()},
          {"moe-64", speedrun_moe(64, 6, 2, 1)},
          {"moe-256", speedrun_moe(256, 7, 1, 0)}};
}

// Requires that every member of `expected` is in `actual` with the same value.
void require_includes(const Json& actual, const Json& expected, const std::string& path) {
  INFO(path);
  if (!expected.is_object()) {
    REQUIRE(actual == expected);
    return;
  }
  for (const auto& [key, value] : expected.items()) {
    INFO(path << "." << key);
    REQUIRE(actual.contains(key));
    require_includes(actual[key], value, path + "." + key);
  }
}

}  // namespace

TEST_CASE("speedrun models: published counts, FLOPs and horizons") {
  struct Expected {
    int64_t total, active, flops, total_steps, total_fifth, active_steps;
  };
  const std::vector<Expected> expected = {
      {190532352, 190532352, 1024524288, 9536, 1908, 9536},
      {755534592, 191073024, 1027768320, 37813, 7563, 9563},
      {2836482816, 192891648, 1038680064, 141963, 28393, 9654},
  };
  const std::vector<NamedConfig> models = speedrun();
  for (size_t i = 0; i < models.size(); ++i) {
    INFO(models[i].name);
    const Config& c = models[i].config;
    const Audit a = audit(c);
    REQUIRE(a.total == expected[i].total);
    REQUIRE(a.active == expected[i].active);
    REQUIRE(a.ffn_active_width == 3072);
    REQUIRE(a.flops_per_token == expected[i].flops);
    const int64_t total = horizon_steps(a.total, c.contract.coefficient, c.run.batch_tokens);
    REQUIRE(total == expected[i].total_steps);
    REQUIRE(fraction_of_steps(total, 0.2) == expected[i].total_fifth);
    REQUIRE(horizon_steps(a.active, c.contract.coefficient, c.run.batch_tokens) ==
            expected[i].active_steps);
    Config run = c;
    REQUIRE(planned_steps(run) == 9536);
    run.contract.kind = ContractKind::kTotalDN, run.contract.fraction = 0.2;
    REQUIRE(planned_steps(run) == expected[i].total_fifth);
  }
  REQUIRE(9536.0 * 524288 / 190532352 == 26.24021755633395);
  REQUIRE(tokens_per_routed_expert(models[1].config.model, int64_t{9536} * 524288) == 468713472);
  REQUIRE(tokens_per_routed_expert(models[2].config.model, int64_t{12000} * 524288) == 172032000);
}

TEST_CASE("the published slice that leaves shared experts out of the total") {
  const Config d12 = speedrun_moe(256, 7, 1, 0);
  const int64_t total =
      contract_parameters(ContractKind::kTotalDN, audit(d12), SharedExperts::kLeftOut);
  REQUIRE(total == 2825865984);
  const int64_t steps = horizon_steps(total, 8, 524288);
  REQUIRE(steps == 43119);
  REQUIRE(fraction_of_steps(steps, 0.02) == 863);
  REQUIRE(fraction_of_steps(steps, 0.05) == 2156);
  REQUIRE(fraction_of_steps(steps, 0.1) == 4312);
  REQUIRE(fraction_of_steps(steps, 0.2) == 8624);
}

TEST_CASE("the JSON audit includes every number of the design's table") {
  const std::filesystem::path file = "../shared/design/NUMBERS.json";
  AuditOptions options;
  options.fractions = {0.2};
  options.steps = {9536, 12000};
  const Json json = audit_json(speedrun(), options);
  if (std::filesystem::exists(file)) {
    const Json numbers = Json::parse(std::ifstream(file));
    require_includes(json["models"], numbers["models"], "models");
    REQUIRE(json["gamma_tokens_per_parameter"] == numbers["gamma_tokens_per_parameter"]);
    REQUIRE(json["models"].size() == 3);
  }
  // A copy of some of its numbers, for when the table is absent.
  const Json expected = Json::parse(R"({"dense": {"params": {"embedding_and_head": 77266944,
    "attention": 28311552, "norms": 19200, "dense_ffn": 84934656, "total": 190532352},
    "totalDN": {"full_steps": 9536, "20pct_steps": 1908}, "tokens_per_P_total_at_9536": 26.2402},
    "moe-64": {"params": {"dense_ffn": 7077888, "router": 540672, "routed_experts": 622854144,
    "shared_experts": 19464192, "total": 755534592, "active": 191073024}, "activeDN_steps": 9563,
    "tokens_per_P_total_at_9536": 6.6173, "tokens_per_routed_expert": {"12000_steps": 589824000},
    "ceilings": {"cv_percent": 310.91, "entropy_nats": 4.1588830833596715}},
    "moe-256": {"params": {"router": 2359296, "routed_experts": 2717908992,
    "shared_experts": 10616832}, "ceilings": {"cv_percent": 596.42, "max_load":
    0.14285714285714285, "saturation": 0.1285714285714286}, "flops_per_token": 1038680064}})");
  require_includes(json["models"], expected, "models");
}

TEST_CASE("the JSON audit has no tokens of steps that a run measures") {
  std::vector<NamedConfig> models = {{"moe", speedrun_moe(64, 6, 2, 1)}};
  ContractConfig& contract = models[0].config.contract;
  contract.kind = ContractKind::kSeconds;
  contract.coefficient = 60;
  const auto per_parameter = [&](const AuditOptions& options) {
    const Json json = audit_json(models, options)["models"]["moe"];
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) {
      if (key.starts_with("tokens_per_")) keys.push_back(key);
    }
    return keys;
  };
  REQUIRE(audit_json(models, {})["models"]["moe"]["run"]["steps"].is_null());
  REQUIRE(per_parameter({}).empty());
  AuditOptions asked;
  asked.steps = {100};
  REQUIRE(per_parameter(asked).size() == 3);
  contract.step_seconds = 0.5;  // 120 steps
  REQUIRE(per_parameter({}).front() == "tokens_per_P_total_at_120");
}

TEST_CASE("table and formula agree for odd shapes, and with a count by hand") {
  Config c;
  ModelConfig& m = c.model;
  m.hidden = 96, m.layers = 5, m.heads = 6, m.kv_heads = 2, m.head_dim = 32, m.ffn = 100;
  m.vocab_size = 321, m.qk_norm = true;
  for (const bool tied : {false, true}) {
    m.tie_embeddings = tied;
    for (const int64_t first_dense : {0, 2, 5}) {
      MoeConfig& moe = m.moe.emplace();
      moe.experts = 7, moe.top_k = 3, moe.shared = 2, moe.expert_ffn = 40;
      moe.first_dense_layers = first_dense;
      REQUIRE(count_from_table(m) == count_from_formula(m));
    }
    m.moe.reset();
    REQUIRE(count_from_table(m) == count_from_formula(m));
  }
  // Tied, dense: 321*96 + 5 * (2*96 + 2*32 + 96*(6+4)*32 + 96*6*32 + 3*96*100) + 96.
  REQUIRE(audit(c).total == 321 * 96 + 5 * (2 * 96 + 2 * 32 + 96 * 320 + 96 * 192 + 28800) + 96);
  // The tied head still multiplies; 192 = heads * head_dim, not hidden.
  c.run.sequence = 64;
  REQUIRE(audit(c).flops_per_token ==
          6 * (321 * 96 + 5 * (96 * 320 + 96 * 192 + 28800)) + 6 * 5 * 192 * 64);
}

TEST_CASE("a quadrillion parameters are audited without delay, counts beyond 63 bits refused") {
  Config c = speedrun_moe(65536, 64, 8, 0);
  c.model.hidden = 65536, c.model.layers = 1024, c.model.heads = 512;
  const auto start = std::chrono::steady_clock::now();
  const Audit a = audit(c);
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
  REQUIRE(a.parameters.routed_experts == int64_t{1024} * 65536 * 3 * 65536 * 384);
  REQUIRE(a.active < a.total / 100);
  c.model.moe->expert_ffn = 1 << 30;
  REQUIRE_THROWS_AS(audit(c), UserError);
}

TEST_CASE("an inconsistent model is refused") {
  Config c = speedrun_moe(64, 6, 2, 1);
  c.model.heads = 7;
  REQUIRE_THROWS_AS(audit(c), UserError);
  c = speedrun_moe(62, 63, 2, 1);
  REQUIRE_THROWS_AS(audit(c), UserError);
}

TEST_CASE("the table shows the models side by side") {
  REQUIRE(grouped(0) == "0");
  REQUIRE(grouped(999) == "999");
  REQUIRE(grouped(-1000) == "-1,000");
  REQUIRE(grouped(-999) == "-999");
  REQUIRE(grouped(2836482816) == "2,836,482,816");
  const std::string text = audit_table(speedrun(), {});
  for (const char* part : {"190,532,352", "2,836,482,816", "141,963", "28,393", "1,024,524,288"})
    REQUIRE(text.find(part) != std::string::npos);
  // Every line is as long as the first, so columns are aligned.
  const size_t width = text.find('\n');
  for (size_t at = 0; at < text.size(); at += width + 1) REQUIRE(text[at + width] == '\n');
}

}  // namespace assay::test_audit
