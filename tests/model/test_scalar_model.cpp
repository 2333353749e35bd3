// Proves the scalar model: its gradient by complex step, its value in cases with a closed form.
#include <chrono>

#include "base/random.h"
#include "tests/catch.h"
#include "tests/model/scalar_model.h"

namespace assay::ref {

namespace {

ModelConfig dense_model() {
  ModelConfig c;
  c.hidden = 32, c.layers = 2, c.heads = 2, c.kv_heads = 1, c.head_dim = 32, c.ffn = 24;
  c.vocab_size = 17, c.qk_norm = true, c.attention_gain = AttentionGain::kDepth;
  c.embed_gain = 1.5, c.logit_gain = 0.75;
  return c;
}

ModelConfig moe_model(const std::string& score, const std::string& aux, const std::string& scope) {
  ModelConfig c = dense_model();
  c.kv_heads = 0, c.qk_norm = false, c.attention_gain = AttentionGain::kOne;
  MoeConfig& m = c.moe.emplace();
  m.experts = 5, m.top_k = 2, m.shared = 1, m.expert_ffn = 8;
  m.router.score = *choice_named<RouterScore>(score);
  m.router.aux = *choice_named<RouterAux>(aux);
  m.router.aux_scope = *choice_named<AuxScope>(scope);
  m.router.aux_alpha = 0.3, m.router.z_alpha = 0.05;
  m.router.route_scale = 1.25, m.router.gate_scale = 1.75;
  return c;
}

ScalarBatch some_batch(const ModelConfig& c, size_t sequences, size_t sequence) {
  ScalarBatch batch;
  batch.sequence = sequence;
  batch.mask_id = 3;
  RandomSequence random({.seed = 11, .stream = stream_id("batch")});
  const uint32_t vocab = static_cast<uint32_t>(c.vocab_size);
  for (size_t n = 0; n < sequences * sequence; ++n) {
    batch.tokens.push_back(static_cast<int>(random.below(vocab)));
    batch.targets.push_back(n % 5 == 1 ? batch.mask_id : static_cast<int>(random.below(vocab)));
  }
  return batch;
}

// Compares the tape with complex steps for some elements of every tensor.
void require_gradient(const ModelConfig& c) {
  const ScalarBatch batch = some_batch(c, 2, 4);
  const ScalarParameters<double> p = scalar_parameters(c, 5);
  const ScalarParameters<double> gradient = scalar_gradient(c, p, batch);
  ScalarParameters<Complex> z;
  for (const auto& [name, values] : p) z[name].assign(values.begin(), values.end());
  REQUIRE(gradient.size() == parameter_table(c).size());

  for (const ParameterSpec& spec : parameter_table(c)) {
    INFO(spec.name);
    std::vector<Complex>& values = z[spec.name];
    const std::vector<double>& claimed = gradient.at(spec.name);
    REQUIRE(claimed.size() == values.size());
    double largest = 0, worst = 0;
    for (const double g : claimed) largest = std::max(largest, std::abs(g));
    REQUIRE((largest > 0) == spec.trained());
    const size_t stride = 1 + values.size() / 12;
    for (size_t i = 0; i < values.size(); i += stride) {
      constexpr double h = 1e-50;
      const Complex kept = values[i];
      values[i] = {kept.real(), h};
      const double derivative = scalar_losses(c, z, batch).total.imag() / h;
      values[i] = kept;
      worst = std::max(worst, std::abs(derivative - claimed[i]));
    }
    REQUIRE(worst <= 1e-12 * (largest + 1e-3));
  }
}

}  // namespace

TEST_CASE("scalar model, dense: gradient by tape = by complex step") {
  ModelConfig c = dense_model();
  require_gradient(c);
  c.tie_embeddings = true;
  require_gradient(c);
}

TEST_CASE("scalar model, mixtures: gradient by tape = by complex step") {
  for (const char* score : {"sigmoid", "softmax"})
    for (const char* aux : {"switch", "gates"}) {
      INFO(score << " " << aux);
      require_gradient(moe_model(score, aux, "micro"));
    }
  require_gradient(moe_model("softmax", "switch", "sequence"));
  ModelConfig c = moe_model("softmax", "gates", "sequence");
  c.moe->router.normalize_gates = false;
  c.moe->first_dense_layers = 1;
  c.moe->shared = 0;
  require_gradient(c);
}

TEST_CASE("scalar model: all weights zero give ln V, uniform routing gives aux 1 and z = ln(E)^2") {
  for (const char* score : {"sigmoid", "softmax"}) {
    ModelConfig c = moe_model(score, "switch", "micro");
    ScalarParameters<double> p = scalar_parameters(c, 1);
    for (auto& [name, values] : p) std::fill(values.begin(), values.end(), 0.0);
    const ScalarLosses<double> losses = scalar_losses(c, p, some_batch(c, 2, 3));
    REQUIRE(losses.cross_entropy == Approx(std::log(17.0)).epsilon(1e-14));
    REQUIRE(losses.aux == Approx(1.0).epsilon(1e-14));
    REQUIRE(losses.z == Approx(std::pow(std::log(5.0), 2)).epsilon(1e-14));
    REQUIRE(losses.total == Approx(std::log(17.0) + 0.3 + 0.05 * losses.z).epsilon(1e-14));
  }
}

TEST_CASE("scalar model: a mixture of equal experts is the dense model") {
  ModelConfig dense = dense_model();
  dense.ffn = 8;
  ModelConfig moe = dense;
  MoeConfig& m = moe.moe.emplace();
  m.experts = 3, m.top_k = 2, m.expert_ffn = 8;
  ScalarParameters<double> p = scalar_parameters(dense, 2);
  ScalarParameters<double> q = scalar_parameters(moe, 2);
  for (const char* at : {"blocks.0.", "blocks.1."})
    for (const char* name : {"gate_up", "down"}) {
      std::vector<double> three;
      for (int e = 0; e < 3; ++e) {
        const std::vector<double>& one = p.at(std::string(at) + "ffn." + name);
        three.insert(three.end(), one.begin(), one.end());
      }
      q.at(std::string(at) + "moe." + name) = three;
    }
  const ScalarBatch batch = some_batch(dense, 2, 4);
  REQUIRE(scalar_losses(moe, q, batch).cross_entropy ==
          Approx(scalar_losses(dense, p, batch).cross_entropy).epsilon(1e-13));
}

TEST_CASE("scalar model: attention is causal within a sequence, masked targets do not count") {
  const ModelConfig c = dense_model();
  const ScalarParameters<double> p = scalar_parameters(c, 3);
  ScalarBatch batch = some_batch(c, 2, 4);
  batch.targets.assign(8, -1);
  batch.targets[5] = 4;
  const double loss = scalar_losses(c, p, batch).cross_entropy;
  ScalarBatch other = batch;
  for (const size_t n : {0u, 1u, 2u, 3u, 6u, 7u}) other.tokens[n] = (other.tokens[n] + 1) % 17;
  REQUIRE(scalar_losses(c, p, other).cross_entropy == loss);
  other.tokens[4] = (other.tokens[4] + 1) % 17;
  REQUIRE(scalar_losses(c, p, other).cross_entropy != loss);
}

TEST_CASE("scalar top-K: ties go to the lower id, the bias selects") {
  REQUIRE(scalar_top_k({1, 3, 3, 2}, 3) == std::vector<size_t>{1, 2, 3});
  REQUIRE(scalar_top_k({0, 0, 0}, 2) == std::vector<size_t>{0, 1});
  MoeConfig m;
  m.experts = 3, m.top_k = 1;
  m.router.score = RouterScore::kSoftmax;
  const std::vector<double> weight = {1.0, 0.5, 0.0};
  const Rows<double> x = {{1.0}};
  const auto chosen = [&](std::vector<double> bias) {
    return scalar_router(x, weight, bias, m, 1).expert[0][0];
  };
  REQUIRE(chosen({0, 0, 0}) == 0);
  REQUIRE(chosen({0, 0, 1}) == 2);
  REQUIRE(scalar_router(x, weight, {0, 0, 1.0}, m, 1).gate[0][0] == 1.0);
}

}  // namespace assay::ref
