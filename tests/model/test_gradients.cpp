// The whole model in recipe fp32 against the scalar model in double: losses, and the gradient of
// every element of every parameter. The scalar gradient is proved by complex step in
// test_scalar_model.cpp.
#include <cmath>

#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/model/scalar_model.h"

namespace assay::test_gradients {

namespace {

Config gradient_config() {
  Config c = small_config();
  c.model.heads = 2;
  c.model.kv_heads = 1;
  c.model.head_dim = 32;
  c.model.attention_gain = AttentionGain::kDepth;
  c.model.embed_gain = 1.5;
  c.model.logit_gain = 0.75;
  return c;
}

Config moe_config(const std::string& score, const std::string& aux, const std::string& scope,
                  bool normalize = true) {
  Config c = gradient_config();
  MoeConfig m{.experts = 5,
              .top_k = 2,
              .shared = 1,
              .expert_ffn = 20,
              .first_dense_layers = 0,
              .router = {}};
  m.router.score = *choice_named<RouterScore>(score);
  m.router.normalize_gates = normalize;
  m.router.aux = *choice_named<RouterAux>(aux);
  m.router.aux_scope = *choice_named<AuxScope>(scope);
  m.router.aux_alpha = aux == "none" ? 0.0 : 0.3;
  m.router.z_alpha = 0.05;
  m.router.bias_rate = 1e-3;
  if (score == "sigmoid") m.router.route_scale = 1.25;
  m.router.gate_scale = 1.75;
  c.model.moe = m;
  return c;
}

void require_gradients(const Config& config) {
  constexpr int64_t kBatch = 3, kSequence = 7;
  constexpr int kMask = 3;
  ModelFixture f(config, Recipe::kFp32, kBatch, kSequence, 2, kMask);
  ref::ScalarBatch batch{.tokens = {f.token.begin(), f.token.end()},
                         .targets = {f.target.begin(), f.target.end()},
                         .sequence = size_t(kSequence),
                         .mask_id = kMask};
  batch.targets[4] = f.target[4] = -1;
  batch.targets[9] = f.target[9] = kMask;
  int64_t counted = 0;
  for (const int t : batch.targets) counted += t >= 0 && t != kMask;

  const auto parameters = ref::scalar_parameters(config.model, 5);
  for (const TensorRef& t : f.model->tensors()) {
    const std::vector<double>& values = parameters.at(t.name);
    REQUIRE(int64_t(values.size()) == t.size());
    for (size_t i = 0; i < values.size(); ++i) static_cast<float*>(t.data)[i] = float(values[i]);
  }
  f.model->refresh_weights(f.on);
  f.model->begin_step(f.on, {.loss = 1.0f / float(counted)});
  f.model->forward_backward(f.on, f.all());
  f.read_back();

  const auto losses = ref::scalar_losses(config.model, parameters, batch);
  REQUIRE(std::abs(f.model->loss_sum() / double(counted) - losses.cross_entropy) <
          1e-5 * losses.cross_entropy);
  double aux = 0, z = 0;
  const auto& layers = f.model->router_layers();
  for (const RouterLayerState& layer : layers) {
    aux += layer.aux / double(layers.size());
    z += layer.z / double(layers.size());
  }
  REQUIRE(std::abs(aux - losses.aux) <= 1e-5 * std::abs(losses.aux));
  REQUIRE(std::abs(z - losses.z) <= 1e-5 * std::abs(losses.z));

  const auto gradient = ref::scalar_gradient(config.model, parameters, batch);
  for (const ParameterRef& p : f.model->parameters()) {
    const std::vector<double>& want = gradient.at(p.spec->name);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      worst = std::max(worst, std::abs(want[i] - double(p.grad[int64_t(i)])));
    }
    INFO(p.spec->name << ": off by " << worst << " of " << largest);
    REQUIRE(largest > 0);
    // About a hundred float roundings occur on the way from a parameter to the loss and back; the
    // tolerance is 200 * 2^-24.
    REQUIRE(worst <= 200 * 0x1p-24 * largest);
  }
}

}  // namespace

TEST_CASE("gradients of the dense model") {
  Config c = gradient_config();
  require_gradients(c);
  c.model.qk_norm = true;
  require_gradients(c);
  c.model.tie_embeddings = true;
  require_gradients(c);
}

TEST_CASE("gradients of the mixture of experts") {
  for (const char* score : {"sigmoid", "softmax"}) {
    for (const char* aux : {"none", "switch", "gates"}) {
      for (const char* scope : {"micro", "sequence"}) {
        INFO(score << " " << aux << " " << scope);
        require_gradients(moe_config(score, aux, scope));
      }
    }
  }
  for (const char* score : {"sigmoid", "softmax"}) {
    for (const char* aux : {"switch", "gates"}) {
      INFO(score << " " << aux << " not normalised");
      require_gradients(moe_config(score, aux, "micro", false));
    }
  }
}

TEST_CASE("gradients with a dense block first and without a shared expert") {
  Config c = moe_config("sigmoid", "gates", "step");
  c.model.moe->first_dense_layers = 1;
  c.model.moe->shared = 0;
  require_gradients(c);
}

}  // namespace assay::test_gradients
