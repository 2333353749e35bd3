// The size with which the branch of a mixture begins, against drawn routers and branches.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/audit/family.h"
#include "models/audit/ladder.h"
#include "models/audit/routed_scale.h"
#include "tests/catch.h"
#include "tests/model/speedrun_family.h"

namespace assay::test_routed_scale {
namespace {

ModelConfig mixture(int64_t hidden, int64_t experts, int64_t top_k) {
  ModelConfig m;
  m.hidden = hidden;
  MoeConfig& moe = m.moe.emplace();
  moe.experts = experts, moe.top_k = top_k;
  return m;
}

// RMS of the gates that routers of the standard deviation 0.02 give to normalised tokens.
double drawn_gates(const ModelConfig& m) {
  constexpr int64_t kTokens = 4000;
  const RandomKey key = {.seed = 1, .stream = stream_id("drawn routers"), .step = 0};
  const int64_t experts = m.moe->experts, top_k = m.moe->top_k;
  const bool sigmoid = m.moe->router.score == RouterScore::kSigmoid;
  double squares = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> scores;
    double all = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const double logit =
          0.02 * std::sqrt(double(m.hidden)) * random_normal(key, uint64_t(t * experts + e));
      scores.push_back(sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit));
      all += scores.back();
    }
    std::partial_sort(scores.begin(), scores.begin() + top_k, scores.end(), std::greater<>());
    for (int64_t k = 0; k < top_k; ++k) {
      const double gate = scores[size_t(k)] / (sigmoid ? 1 : all);
      squares += gate * gate;
    }
  }
  return std::sqrt(squares / double(kTokens * top_k));
}

std::string branch_text(const std::vector<NamedConfig>& models) {
  for (const Confound& c : recorded_confounds(models))
    if (c.name == "branch_scale") return c.text;
  return "";
}

}  // namespace

TEST_CASE("gates that are not normalised are the largest of E scores") {
  struct Case {
    int64_t hidden, experts, top_k;
    double sigmoid, softmax;  // relative to 1/2 and 1/E
  };
  for (const Case& c : {Case{128, 4, 2, 1.08, 1.16}, Case{1024, 64, 8, 1.47, 2.45},
                        Case{1024, 256, 8, 1.61, 3.52}}) {
    INFO(c.hidden << " " << c.experts << " " << c.top_k);
    ModelConfig m = mixture(c.hidden, c.experts, c.top_k);
    RouterConfig& router = m.moe->router;
    router.normalize_gates = false;
    router.gate_scale = 2;
    REQUIRE(branch_scale(m).first == Approx(c.sigmoid).epsilon(0.005));
    REQUIRE(branch_scale(m).first == Approx(2 * drawn_gates(m)).epsilon(0.01));
    REQUIRE(branch_scale(m).last == branch_scale(m).first);
    REQUIRE(2 / gate_divisor(m) == Approx(branch_scale(m).first));
    router.score = RouterScore::kSoftmax;
    router.gate_scale = double(c.experts);
    REQUIRE(branch_scale(m).first == Approx(c.softmax).epsilon(0.005));
    REQUIRE(branch_scale(m).first == Approx(router.gate_scale * drawn_gates(m)).epsilon(0.05));
    router.normalize_gates = true;
    REQUIRE(branch_scale(m).first == Approx(double(c.experts) / double(c.top_k)));
    REQUIRE(gate_divisor(m) == double(c.top_k));
  }
  // Twice the scale in a sigmoid is twice the standard deviation of the logits.
  ModelConfig narrow = mixture(256, 8, 2), wide = mixture(1024, 8, 2);
  for (ModelConfig* m : {&narrow, &wide}) m->moe->router.normalize_gates = false;
  narrow.moe->router.route_scale = 2;
  REQUIRE(branch_scale(narrow).first == Approx(branch_scale(wide).first));
  narrow.moe->router.score = wide.moe->router.score = RouterScore::kSoftmax;
  REQUIRE(branch_scale(narrow).first < 0.99 * branch_scale(wide).first);
}

TEST_CASE("init nmoe makes routed experts smaller with depth, and not those that are shared") {
  ModelConfig m = mixture(128, 4, 2);
  m.moe->first_dense_layers = 1;
  REQUIRE(branch_scale(m).first == Approx(0.5));
  REQUIRE(branch_scale(m).last == Approx(0.5));
  m.init = InitRule::kNmoe;
  // RMS of drawn branches of 128 wide experts, over those of a dense FFN: blocks 1 and 3.
  REQUIRE(branch_scale(m).first == Approx(0.1222).epsilon(0.02));
  REQUIRE(branch_scale(m).last == Approx(0.0625).epsilon(0.03));
  ModelConfig deep = mixture(1024, 4, 1);
  deep.layers = 12;
  deep.init = InitRule::kNmoe;
  REQUIRE(branch_scale(deep).first == Approx(0.4793).epsilon(1e-3));
  REQUIRE(branch_scale(deep).last == Approx(0.03778).epsilon(1e-3));
  const double routed = branch_scale(m).first;
  m.moe->shared = 1;
  REQUIRE(branch_scale(m).first == Approx(std::sqrt((2 * routed * routed + 1) / 3)));
  m.moe->first_dense_layers = m.layers;
  REQUIRE(branch_scale(m).first == 1);
  REQUIRE(gate_divisor(m) == 1);
}

TEST_CASE("the line on the branch has the first and the last block where they differ") {
  std::vector<NamedConfig> models = {{"c", {}}, {"d", {}}};
  models[0].config.model = mixture(128, 4, 2);
  models[0].config.model.moe->first_dense_layers = 1;
  models[1].config.model.hidden = 128;
  const auto has = [&](const std::string& values) {
    return branch_text(models).find("of its width: " + values + ";") != std::string::npos;
  };
  REQUIRE(has("c 0.5, d 1"));
  for (NamedConfig& model : models) model.config.model.init = InitRule::kNmoe;
  REQUIRE(has("c 0.123 to 0.0615, d 1"));
  models[1].config.model = models[0].config.model;
  models[1].config.model.moe->router.gate_scale = 1.005;
  REQUIRE(branch_text(models).empty());
  models[1].config.model.moe->router.gate_scale = 1.1;
  REQUIRE(has("c 0.123 to 0.0615, d 0.136 to 0.0677"));
}

TEST_CASE("a ladder keeps the size of branches whose gates are not normalised, too") {
  Config base = speedrun_moe(64, 2, 0, 0);
  base.contract = {};
  RouterConfig& router = base.model.moe->router;
  router.normalize_gates = false;
  router.gate_scale = 1.5;
  const auto rungs = [&](RungGates gates) {
    std::vector<NamedConfig> models;
    for (const int64_t experts : {32, 64, 96, 192}) {
      const Rung rung = granularity_rung(base, experts, LadderEqual::kWidth, 8, gates);
      models.push_back({rung.name, rung.config});
    }
    return models;
  };
  const auto last_gate = [](const std::vector<NamedConfig>& models) {
    return models.back().config.model.moe->router.gate_scale;
  };
  std::vector<NamedConfig> kept = rungs(RungGates::kKeepBranchScale);
  REQUIRE(branch_text(kept).empty());
  REQUIRE(last_gate(kept) == Approx(1.4884).epsilon(1e-3));
  base.model.init = InitRule::kNmoe;
  REQUIRE(branch_text(rungs(RungGates::kKeepBranchScale)).empty());
  base.model.init = InitRule::kDefault;
  router.score = RouterScore::kSoftmax;
  REQUIRE(!branch_text(rungs(RungGates::kOfBase)).empty());
  kept = rungs(RungGates::kKeepBranchScale);
  REQUIRE(branch_text(kept).empty());
  REQUIRE(last_gate(kept) == Approx(4.3).epsilon(1e-3));
}

}  // namespace assay::test_routed_scale
