#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "base/random.h"
#include "models/parameters/table.h"
#include "tests/catch.h"

namespace assay::test_parameters {

namespace {

ModelConfig small_moe() {
  ModelConfig c;
  c.hidden = 64, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.ffn = 96, c.vocab_size = 50;
  c.qk_norm = true;
  c.moe = MoeConfig{.experts = 5,
                    .top_k = 2,
                    .shared = 2,
                    .expert_ffn = 24,
                    .first_dense_layers = 1,
                    .router = {}};
  return c;
}

std::map<std::string, ParameterSpec> by_name(const ModelConfig& c) {
  std::map<std::string, ParameterSpec> map;
  for (const ParameterSpec& spec : parameter_table(c))
    REQUIRE(map.emplace(spec.name, spec).second);  // names are unique
  return map;
}

}  // namespace

TEST_CASE("parameter table of a mixture with a dense first block") {
  const auto p = by_name(small_moe());
  using Shape = std::vector<int64_t>;
  REQUIRE(p.at("embed.weight").shape == Shape{50, 64});
  REQUIRE(p.at("blocks.0.attn.qkv").shape == Shape{(4 + 2 * 2) * 16, 64});
  REQUIRE(p.at("blocks.0.attn.q_norm").shape == Shape{16});
  REQUIRE(p.at("blocks.0.attn.out").shape == Shape{64, 64});
  REQUIRE(p.at("blocks.0.ffn.gate_up").shape == Shape{192, 64});
  REQUIRE(p.at("blocks.0.ffn.down").shape == Shape{64, 96});
  REQUIRE(p.count("blocks.0.moe.router") == 0);
  REQUIRE(p.count("blocks.1.ffn.gate_up") == 0);
  REQUIRE(p.at("blocks.1.ffn.norm").shape == Shape{64});
  REQUIRE(p.at("blocks.1.moe.router").shape == Shape{5, 64});
  REQUIRE(p.at("blocks.1.moe.bias").shape == Shape{5});
  REQUIRE(p.at("blocks.2.moe.gate_up").shape == Shape{5, 48, 64});
  REQUIRE(p.at("blocks.2.moe.down").shape == Shape{5, 64, 24});
  REQUIRE(p.at("blocks.2.moe.shared.gate_up").shape == Shape{96, 64});
  REQUIRE(p.at("blocks.2.moe.shared.down").shape == Shape{64, 48});
  REQUIRE(p.at("head.weight").shape == Shape{50, 64});
  REQUIRE(p.size() == 1 + 8 + 2 * (6 + 6) + 2);

  for (const auto& [name, spec] : p)
    REQUIRE(spec.trained() == (name != "blocks.1.moe.bias" && name != "blocks.2.moe.bias"));
  REQUIRE(p.at("blocks.1.moe.router").group == ParameterGroup::kRouter);
  REQUIRE(p.at("blocks.1.moe.down").group == ParameterGroup::kExperts);
  REQUIRE(p.at("blocks.1.moe.shared.down").group == ParameterGroup::kDecay);
  REQUIRE(p.at("blocks.0.ffn.down").group == ParameterGroup::kDecay);
  REQUIRE(p.at("blocks.0.attn.norm").group == ParameterGroup::kNoDecay);
  REQUIRE(p.at("embed.weight").group == ParameterGroup::kNoDecay);
  REQUIRE(p.at("head.weight").group == ParameterGroup::kNoDecay);
}

TEST_CASE("standard deviations of the two inits") {
  ModelConfig c = small_moe();
  auto p = by_name(c);
  const double depth2 = 0.02 / std::sqrt(6.0);  // block 2
  REQUIRE(p.at("embed.weight").std == 0.02);
  REQUIRE(p.at("head.weight").std == 0.125);
  REQUIRE(p.at("blocks.2.attn.qkv").std == 0.02);
  REQUIRE(p.at("blocks.2.attn.out").std == Approx(depth2));
  REQUIRE(p.at("blocks.0.ffn.down").std == Approx(0.02 / std::sqrt(2.0)));
  REQUIRE(p.at("blocks.2.moe.gate_up").std == 0.02);
  REQUIRE(p.at("blocks.2.moe.router").std == 0.02);
  REQUIRE(p.at("blocks.2.moe.down").std == Approx(depth2));
  c.init = InitRule::kNmoe;
  p = by_name(c);
  REQUIRE(p.at("blocks.2.moe.gate_up").std == Approx(depth2));
  REQUIRE(p.at("blocks.2.moe.router").std == Approx(depth2));
  REQUIRE(p.at("blocks.2.moe.down").std == Approx(depth2));
  REQUIRE(p.at("blocks.2.moe.shared.gate_up").std == 0.02);
  REQUIRE(p.at("blocks.2.attn.qkv").std == 0.02);
}

TEST_CASE("tied embeddings have no head, dense models no experts") {
  ModelConfig c;
  c.tie_embeddings = true;
  for (const ParameterSpec& spec : parameter_table(c)) {
    REQUIRE(spec.role != Role::kHead);
    REQUIRE(spec.group != ParameterGroup::kExperts);
    REQUIRE(spec.trained());
  }
  c.moe.emplace().first_dense_layers = 99;
  REQUIRE(moe_blocks(c) == 0);
}

TEST_CASE("initialisation: same bits for any thread count, right spread, keyed by name and seed") {
  const ParameterSpec spec = {"blocks.0.ffn.down",    {301, 257},    Role::kDenseFfn,
                              ParameterGroup::kDecay, Init::kNormal, 0.05};
  const auto draw = [](int threads, uint64_t seed, const ParameterSpec& of) {
    std::vector<float> x(static_cast<size_t>(of.size()), NAN);
    initialise({.threads = threads}, of, seed, {x.data(), {of.size()}});
    return x;
  };
  const std::vector<float> one = draw(1, 7, spec);
  REQUIRE(one == draw(2, 7, spec));
  REQUIRE(one == draw(3, 7, spec));
  REQUIRE(one != draw(1, 8, spec));
  ParameterSpec other = spec;
  other.name = "blocks.1.ffn.down";
  REQUIRE(one != draw(1, 7, other));
  REQUIRE(one[12345] ==
          static_cast<float>(0.05 * random_normal({7, stream_id(spec.name), 0}, 12345)));

  double sum = 0, squares = 0;
  for (const float x : one) sum += x, squares += double(x) * x;
  const double n = static_cast<double>(one.size());
  REQUIRE(std::abs(sum / n) < 4 * 0.05 / std::sqrt(n));
  REQUIRE(std::abs(squares / n / (0.05 * 0.05) - 1) < 4 * std::sqrt(2 / n));

  const ParameterSpec norm = {"final.norm", {9}, Role::kNorm, ParameterGroup::kNoDecay,
                              Init::kOne,   0};
  REQUIRE(draw(2, 7, norm) == std::vector<float>(9, 1.0f));
  const ParameterSpec bias = {"moe.bias",  {9}, Role::kBuffer, ParameterGroup::kNoDecay,
                              Init::kZero, 0};
  REQUIRE(draw(2, 7, bias) == std::vector<float>(9, 0.0f));
}

TEST_CASE("shapes whose size exceeds 63 bits are user errors") {
  ModelConfig c;
  c.ffn = int64_t{1} << 62;
  REQUIRE_THROWS_AS(parameter_table(c), UserError);
  c = small_moe();
  c.moe->experts = 65536, c.moe->expert_ffn = 1 << 30, c.hidden = 1 << 30;
  REQUIRE_THROWS_AS(by_name(c).at("blocks.1.moe.gate_up").size(), UserError);
}

}  // namespace assay::test_parameters
