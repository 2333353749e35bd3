// The whole model: initial loss, overfitting, and bitwise equality.
#include <cmath>

#include "tests/catch.h"
#include "tests/model/model_fixture.h"

namespace assay::test_model {

namespace {

Config medium_config(bool moe) {
  Config c = small_config(250);
  c.model.kv_heads = 1;
  if (moe) {
    c.model.moe = six_experts();
    c.model.moe->router.bias_rate = 1e-3;
  }
  c.optimizer.lr = 3e-3;
  return c;
}

std::vector<std::byte> after_steps(const Config& c, Recipe recipe, int threads, int steps,
                                   int64_t micro_batches = 1) {
  ModelFixture f(c, recipe, 4, 40, threads);
  for (int i = 0; i < steps; ++i) f.step(i, micro_batches);
  return f.parameter_bytes();
}

}  // namespace

// Logits of standard deviation s add s^2 / 2 to the loss of a uniform guess.
TEST_CASE("the initial loss of an untied model is ln V, plus what its head adds") {
  for (const bool moe : {false, true}) {
    for (const double spread : {0.1, 1.0}) {
      Config c = medium_config(moe);
      c.model.vocab_size = 4096;
      c.model.head_init = spread;
      ModelFixture f(c, Recipe::kFp32, 4, 64);
      f.gradients();
      const double loss = f.model->loss_sum() / (4.0 * 64.0);
      REQUIRE(std::abs(loss - (std::log(4096.0) + spread * spread / 2)) < 0.2 * spread);
    }
  }
}

TEST_CASE("a model overfits one batch") {
  for (const bool moe : {false, true}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      ModelFixture f(medium_config(moe), recipe, 4, 32);
      double loss = 0;
      for (int i = 0; i < 200; ++i) loss = f.step(i);
      INFO("moe " << moe << " recipe " << recipe_name(recipe) << " loss " << loss);
      REQUIRE(loss < 0.05);
    }
  }
}

TEST_CASE("the same seed gives the same bits, on any number of threads") {
  for (const bool moe : {false, true}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      Config c = medium_config(moe);
      if (moe) {
        c.model.moe->router.aux = RouterAux::kSwitch;
        c.model.moe->router.aux_alpha = 0.01;
        c.model.moe->router.z_alpha = 0.001;
      }
      const auto once = after_steps(c, recipe, 2, 5);
      REQUIRE(once == after_steps(c, recipe, 2, 5));
      REQUIRE(once == after_steps(c, recipe, 1, 5));
      REQUIRE(once == after_steps(c, recipe, 3, 5));
    }
  }
}

TEST_CASE("one micro-batch of four sequences and four of one give the same gradients") {
  for (const bool moe : {false, true}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      Config c = medium_config(moe);
      if (moe) {  // auxiliary losses that do not depend on the split
        c.model.moe->router.z_alpha = 0.05;
        c.model.moe->router.aux = RouterAux::kSwitch;
        c.model.moe->router.aux_scope = AuxScope::kSequence;
        c.model.moe->router.aux_alpha = 0.3;
      }
      ModelFixture one(c, recipe, 4, 40), four(c, recipe, 4, 40);
      one.gradients(1);
      four.gradients(4);
      // Every row of a forward product has the same bits in any batch; only sums over tokens are
      // split differently. The loss is summed in double in row order.
      REQUIRE(one.model->loss_sum() == four.model->loss_sum());
      const auto a = one.model->parameters(), b = four.model->parameters();
      for (size_t i = 0; i < a.size(); ++i) {
        double worst = 0, largest = 1e-30;
        for (int64_t j = 0; j < a[i].grad.size(); ++j) {
          worst = std::max(worst, double(std::abs(a[i].grad[j] - b[i].grad[j])));
          largest = std::max(largest, double(std::abs(a[i].grad[j])));
        }
        INFO(a[i].spec->name << " differs by " << worst << " of " << largest);
        // Sums of 160 tokens in float: sqrt(160) roundings, with a margin.
        REQUIRE(worst <= 64 * 0x1p-24 * largest);
      }
    }
  }
}

TEST_CASE("the gradients of a step do not depend on the step before") {
  for (const bool moe : {false, true}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      ModelFixture f(medium_config(moe), recipe, 4, 40);
      const auto gradients = [&] {
        f.gradients(2);
        std::vector<float> all;
        for (const auto& p : f.model->parameters()) {
          all.insert(all.end(), p.grad.data, p.grad.data + p.grad.size());
        }
        return all;
      };
      const std::vector<float> first = gradients();
      REQUIRE(gradients() == first);
    }
  }
}

TEST_CASE("bf16 gradients point where fp32 gradients point") {
  for (const bool moe : {false, true}) {
    ModelFixture wide(medium_config(moe), Recipe::kFp32, 4, 40),
        narrow(medium_config(moe), Recipe::kBf16, 4, 40);
    wide.gradients();
    narrow.gradients();
    double dot = 0, aa = 0, bb = 0;
    const auto a = wide.model->parameters(), b = narrow.model->parameters();
    for (size_t i = 0; i < a.size(); ++i) {
      for (int64_t j = 0; j < a[i].grad.size(); ++j) {
        dot += double(a[i].grad[j]) * double(b[i].grad[j]);
        aa += double(a[i].grad[j]) * double(a[i].grad[j]);
        bb += double(b[i].grad[j]) * double(b[i].grad[j]);
      }
    }
    REQUIRE(dot / std::sqrt(aa * bb) > 0.999);
  }
}

}  // namespace assay::test_model
