// Training in quantised recipes: bitwise equality, the straight-through products against double,
// the gates' gradient against differences of the loss.
#include <cmath>
#include <cstring>
#include <tuple>

#include "engine/trainer.h"
#include "models/linear/precision.h"
#include "models/linear/projection.h"
#include "ops/linear.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/ref/fake_quantise.h"
#include "tests/tolerance.h"

namespace assay::test_recipes {

namespace {

const std::vector<std::string> kRecipes = {"fp8_tensor", "fp8_block",  "mxfp8",
                                           "nvfp4",      "mxfp8_nmoe", "mxfp4_nmoe"};

// All widths are multiples of every format's block.
Config config_of(const std::string& recipe, bool moe) {
  Config c;
  c.model.hidden = 128;
  c.model.layers = 2;
  c.model.heads = 2;
  c.model.ffn = 128;
  c.model.vocab_size = 250;
  if (moe) {
    c.model.moe = MoeConfig{.experts = 6,
                            .top_k = 2,
                            .shared = 1,
                            .expert_ffn = 128,
                            .first_dense_layers = 1,
                            .router = {}};
    c.model.moe->router.bias_rate = 1e-3;
  }
  c.optimizer.lr = 3e-3;
  c.precision.recipe = recipe;
  c.precision.bf16_last_layers = 0;
  return c;
}

std::vector<std::byte> after_steps(const Config& c, int threads, int steps) {
  ModelFixture f(c, Recipe::kBf16, 4, 20, threads);
  for (int i = 0; i < steps; ++i) f.step(i, 2);
  return f.parameter_bytes();
}

std::vector<TensorRef> tensors_of(ModelFixture& f) {
  std::vector<TensorRef> tensors = f.model->tensors();
  for (const TensorRef& t : f.optimizer->tensors()) tensors.push_back(t);
  return tensors;
}

}  // namespace

TEST_CASE("the last steps in bf16 are a share of the steps, rounded up") {
  const std::tuple<int64_t, double, int64_t> rows[] = {{10, 0.0, 10}, {10, 0.9, 1},  {10, 0.8, 2},
                                                       {10, 0.3, 7},  {60, 0.1, 54}, {10, 0.25, 7}};
  for (const auto& [steps, tail, before] : rows) {
    Config config;
    config.run.steps = steps;
    config.precision.bf16_tail = tail;
    CAPTURE(steps, tail);
    REQUIRE(recipe_steps(config) == before);
    for (const char* recipe : {"bf16", "mxfp8"}) {
      config.precision.recipe = recipe;
      const bool quantises = config.precision.recipe == "mxfp8";
      REQUIRE(precision_phase(config, before) == std::string("recipe"));
      REQUIRE(precision_phase(config, before + 1) == std::string(quantises ? "bf16" : "recipe"));
    }
  }
}

TEST_CASE("a recipe's step has the same bits for any threads") {
  for (const std::string& recipe : kRecipes) {
    CAPTURE(recipe);
    const Config c = config_of(recipe, true);
    REQUIRE(after_steps(c, 1, 3) == after_steps(c, 3, 3));
  }
}

TEST_CASE("a resumed run has the bits of an uninterrupted one, in every recipe") {
  for (const std::string& recipe : kRecipes) {
    CAPTURE(recipe);
    const Config c = config_of(recipe, true);
    ModelFixture whole(c, Recipe::kBf16, 4, 20);
    for (int i = 0; i < 2; ++i) whole.step(i, 2);
    // A checkpoint holds only masters, buffers and moments.
    ModelFixture resumed(c, Recipe::kBf16, 4, 20);
    for (int i = 0; i < 3; ++i) resumed.step(i, 2);  // leaves old contents to overwrite
    const std::vector<TensorRef> from = tensors_of(whole), to = tensors_of(resumed);
    for (size_t i = 0; i < from.size(); ++i) {
      std::memcpy(to[i].data, from[i].data, size_t(from[i].bytes()));
    }
    resumed.model->refresh_weights(resumed.on);
    const double loss = whole.step(2, 2), again = resumed.step(2, 2);
    REQUIRE(loss == again);
    REQUIRE(whole.parameter_bytes() == resumed.parameter_bytes());
  }
}

TEST_CASE("every step rounds its gradients by draws of its own") {
  ModelFixture f(config_of("nvfp4", true), Recipe::kBf16, 4, 20);
  const auto gradients = [&](int64_t first_micro) {
    f.first_micro = first_micro;
    f.gradients();
    std::vector<float> all;
    for (const ParameterRef& p : f.model->parameters()) {
      all.insert(all.end(), p.grad.data, p.grad.data + p.size());
    }
    return all;
  };
  const std::vector<float> first = gradients(0), second = gradients(1), again = gradients(0);
  REQUIRE(first == again);
  REQUIRE(first != second);
}

TEST_CASE("the published expert recipes do not change a dense model") {
  const std::vector<std::byte> plain = after_steps(config_of("bf16", false), 2, 2);
  REQUIRE(after_steps(config_of("mxfp4_nmoe", false), 2, 2) == plain);
  REQUIRE(after_steps(config_of("mxfp8_nmoe", false), 2, 2) == plain);
  REQUIRE(after_steps(config_of("mxfp8", false), 2, 2) != plain);
}

TEST_CASE("the bf16 phase has the bits of recipe bf16, and the recipe comes back") {
  for (const std::string& recipe : kRecipes) {
    CAPTURE(recipe);
    ModelFixture plain(config_of("bf16", true), Recipe::kBf16, 4, 20);
    ModelFixture f(config_of(recipe, true), Recipe::kBf16, 4, 20);
    f.model->enter(f.on, PrecisionPhase::kBf16);
    for (int i = 0; i < 2; ++i) REQUIRE(f.step(i) == plain.step(i));
    REQUIRE(f.parameter_bytes() == plain.parameter_bytes());
    f.model->enter(f.on, PrecisionPhase::kRecipe);
    REQUIRE(f.step(2) != plain.step(2));
  }
}

TEST_CASE("layers kept in bf16 are those of recipe bf16") {
  Config c = config_of("nvfp4", true);
  c.precision.bf16_first_layers = 2;
  REQUIRE(after_steps(c, 2, 2) == after_steps(config_of("bf16", true), 2, 2));
  c.precision.bf16_first_layers = 1;
  REQUIRE(after_steps(c, 2, 2) != after_steps(config_of("bf16", true), 2, 2));
}

TEST_CASE("a model learns one batch in every recipe") {
  for (const std::string& recipe : kRecipes) {
    for (const bool moe : {false, true}) {
      ModelFixture f(config_of(recipe, moe), Recipe::kBf16, 2, 24);
      double first = 0, loss = 0;
      for (int i = 0; i < 60; ++i) {
        loss = f.step(i);
        if (i == 0) first = loss;
      }
      INFO(recipe << " moe " << moe << " loss " << first << " -> " << loss);
      REQUIRE(loss < 0.5 * first);
    }
  }
}

// The gates multiply the outputs of the quantised experts, so their gradient is exact in every
// format. Every expert is chosen, so no choice changes; the model has one block, so nothing
// quantised follows the gates.
TEST_CASE("the gates' gradient matches differences of the loss in every recipe") {
  for (const std::string& recipe : kRecipes) {
    Config c = config_of(recipe, true);
    c.model.layers = 1;
    c.model.moe->first_dense_layers = 0;
    c.model.moe->top_k = c.model.moe->experts;
    ModelFixture f(c, Recipe::kBf16, 4, 64);
    f.gradients();
    ParameterRef router;
    for (const ParameterRef& p : f.model->parameters()) {
      if (p.spec->role == Role::kRouter) router = p;
    }
    const std::vector<float> start = f.values(router.master), grad = f.values(router.grad);
    const auto loss_at = [&](double way, std::vector<double>& at) {
      at.clear();
      for (size_t i = 0; i < start.size(); ++i) {
        // Moves along the gradient, where the loss changes most, rounded to bf16 as the products
        // read it.
        router.master[int64_t(i)] = float(bf16(start[i] + float(way) * grad[i]));
        at.push_back(double(router.master[int64_t(i)]));
      }
      f.model->refresh_weights(f.on);
      f.model->evaluate(f.on, f.all(), f.nats);
      double sum = 0;
      for (int64_t i = 0; i < f.nats.size(); ++i) sum += double(f.nats[i]);
      return sum / double(f.nats.size());
    };
    double squares = 0;
    for (const float g : grad) squares += double(g) * double(g);
    std::vector<double> above, below;
    const double reach = 0.01 / squares;  // the loss moves by about 1/50
    const double difference = loss_at(reach, above) - loss_at(-reach, below);
    double expected = 0;
    for (size_t i = 0; i < grad.size(); ++i) expected += double(grad[i]) * (above[i] - below[i]);
    INFO(recipe << ": loss moves by " << difference << ", the gradient says " << expected);
    REQUIRE(expected > 0.01);
    REQUIRE(std::abs(difference - expected) < tol::central_difference<bf16>(expected));
  }
}

namespace {

std::vector<float> floats(View<const bf16, 2> x) {
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(float(x.data[i]));
  return values;
}

// The values that an operand represents: decoded, including the tensor's scale.
std::vector<double> stands_for(const OperandFormat& f, std::vector<float> x, int64_t rows,
                               int64_t columns, ref::BlocksAlong along, const RandomKey& key) {
  if (!f.quantised()) return {x.begin(), x.end()};
  const std::vector<int64_t> all{0, rows};
  if (f.rotated) x = ref::rotated_segments(x, columns, all, kRotationSigns);
  const ref::FakeCopy copy = ref::fake_quantised(f.format, x, rows, columns, all, along, key);
  std::vector<double> values = copy.y;
  const double inverse = double(1.0f / float(copy.s));  // as stored for the product
  for (double& v : values) v *= has_tensor_scale(f.format.scale) ? inverse : 1;
  return values;
}

struct Sum {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

}  // namespace

TEST_CASE("the products of a layer equal those of its quantised operands") {
  constexpr int64_t kRows = 40, kIn = 128, kOut = 256;  // kRows is not a multiple of the blocks
  Config base = config_of("bf16", false);
  base.model.ffn = kOut;
  const auto key = [](const char* operand) {
    return RandomKey{.seed = 5, .stream = stream_id(std::string("w.") + operand), .step = 9};
  };
  for (const std::string& recipe : kRecipes) {
    CAPTURE(recipe);
    PrecisionConfig precision;
    precision.recipe = recipe;
    const ProductFormats f = precision_table(precision, base.model).of(ProductRole::kExperts);
    const ParameterSpec spec{"w",           {kOut, kIn}, Role::kDenseFfn, ParameterGroup::kDecay,
                             Init::kNormal, 0.02};
    ParameterStore<bf16> store({spec}, Backend::kCpu);
    Projection<bf16> layer({"w", ProductRole::kExperts, 0, f});
    QuantScratch scratch;
    const QuantPass q{scratch, {.training = true}};
    MemoryPlan plan;
    Exec on{.threads = 2};
    View<bf16, 2> x, y, dy, dx;
    store.leave_out("w");
    store.plan(plan, Purpose::kTraining);
    layer.quantised()->plan(plan, spec, Backend::kCpu);
    scratch.plan(plan, base.model, kRows);
    plan.add(Section::kActivations, "x", x, {kRows, kIn});
    plan.add(Section::kActivations, "y", y, {kRows, kOut});
    plan.add(Section::kActivations, "dy", dy, {kRows, kOut});
    plan.add(Section::kActivations, "dx", dx, {kRows, kIn});
    plan.add(Section::kScratch, "workspace", on.workspace,
             {linear_workspace_bytes<bf16>(Backend::kCpu, kRows, kIn)});
    plan.allocate();
    layer.bind(store);
    layer.quantised()->weights().bind(on, store.master("w"));
    store.initialise(on, 3);
    scratch.seed = 5;
    scratch.draw[0] = 9;
    layer.quantised()->refresh_weights(on, q);
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data[i] = bf16(float(random_normal({.seed = 1, .stream = 1, .step = 0}, uint64_t(i))));
    }
    for (int64_t i = 0; i < dy.size(); ++i) {
      dy.data[i] =
          bf16(1e-3f * float(random_normal({.seed = 2, .stream = 1, .step = 0}, uint64_t(i))));
    }
    layer.forward(on, q, x, y, {});
    layer.backward(on, q, {.dx = dx, .dy = dy, .x = x, .dy_amax = {}, .x_amax = {}});

    std::vector<float> w(store.master("w").fp32.data, store.master("w").fp32.data + spec.size());
    const auto weight = [&](const OperandFormat& format, ref::BlocksAlong along) {
      if (format.quantised()) return stands_for(format, w, kOut, kIn, along, {});
      std::vector<double> rounded;
      for (const float v : w) rounded.push_back(double(float(bf16(v))));
      return rounded;
    };
    using Along = ref::BlocksAlong;
    const auto xf = floats(x), df = floats(dy);
    const auto x_in =
        stands_for(f.fprop_input, xf, kRows, kIn, Along::kColumns, key("fprop.input"));
    const auto w_in = weight(f.fprop_weight, Along::kColumns);
    const auto d_out =
        stands_for(f.dgrad_gradient, df, kRows, kOut, Along::kColumns, key("dgrad.gradient"));
    const auto w_out = weight(f.dgrad_weight, Along::kRows);
    const auto d_tokens =
        stands_for(f.wgrad_gradient, df, kRows, kOut, Along::kRows, key("wgrad.gradient"));
    const auto x_tokens =
        stands_for(f.wgrad_input, xf, kRows, kIn, Along::kRows, key("wgrad.input"));
    const View<float, 2> dw = store.matrix_gradient("w");
    const auto require_near = [&](double have, const Sum& want, double n, double rounding) {
      REQUIRE(std::abs(have - want.value) <= rounding + tol::sum(n + 4, want.magnitude));
    };
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        Sum sum;
        for (int64_t i = 0; i < kIn; ++i) {
          sum.add(x_in[size_t(r * kIn + i)], w_in[size_t(o * kIn + i)]);
        }
        require_near(float(y.at(r, o)), sum, kIn, tol::rounding<bf16>(sum.value));
      }
      for (int64_t i = 0; i < kIn; ++i) {
        Sum sum;
        for (int64_t o = 0; o < kOut; ++o) {
          sum.add(d_out[size_t(r * kOut + o)], w_out[size_t(o * kIn + i)]);
        }
        require_near(float(dx.at(r, i)), sum, kOut, tol::rounding<bf16>(sum.value));
      }
    }
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t i = 0; i < kIn; ++i) {
        Sum sum;
        for (int64_t r = 0; r < kRows; ++r) {
          sum.add(d_tokens[size_t(r * kOut + o)], x_tokens[size_t(r * kIn + i)]);
        }
        require_near(double(dw.at(o, i)), sum, kRows, 0);
      }
    }
  }
}

}  // namespace assay::test_recipes
