// Two steps of the optimizer against AdamW in double, parameter by parameter: every group with its
// own learning rate, decay and decay rate of the second moment, after clipping by the global norm.
// Which parameter is in which group is read from its name here, not from the table.
#include <cmath>
#include <string>

#include "engine/optimizer.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/ref/adamw.h"
#include "tests/tolerance.h"

namespace assay::test_optimizer {
namespace {

constexpr int64_t kBatch = 4, kSequence = 16;

Config every_setting() {
  Config c = small_config(97);
  c.model.qk_norm = true;
  c.model.moe = six_experts();
  c.model.moe->router.z_alpha = 1e-3;
  c.optimizer.lr = 1e-2;
  c.optimizer.router_lr = 3e-3;
  c.optimizer.expert_lr = 5e-3;
  c.optimizer.expert_beta2 = 0.9;
  c.optimizer.beta1 = 0.85;
  c.optimizer.beta2 = 0.97;
  c.optimizer.eps = 1e-6;
  c.optimizer.weight_decay = 0.3;
  c.optimizer.clip = 0.05;
  return c;
}

struct Settings {
  double lr, beta2, decay;
};

bool has(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// docs/numerics.md#adamw: embedding, head, norms and routers do not decay; experts and routers have
// rates of their own.
Settings settings_of(const std::string& name, const OptimizerConfig& o) {
  if (has(name, "norm") || has(name, "embed") || has(name, "head")) return {o.lr, o.beta2, 0};
  if (has(name, "moe.router")) return {*o.router_lr, o.beta2, 0};
  if (has(name, "moe.") && !has(name, "shared")) {
    return {*o.expert_lr, *o.expert_beta2, o.weight_decay};
  }
  return {o.lr, o.beta2, o.weight_decay};
}

struct State {
  std::string name;
  std::vector<ref::AdamW> of;  // by element
};

double norm_of(const Model& model) {
  double squares = 0;
  for (const ParameterRef& p : const_cast<Model&>(model).parameters()) {
    for (int64_t i = 0; i < p.size(); ++i) squares += double(p.grad[i]) * double(p.grad[i]);
  }
  return std::sqrt(squares);
}

// The updated parameter is rounded once; gradient, moments and their quotient are in float, each
// within a few roundings. Where moments cancel, the step is small, but its error is not: so the
// rule is a part of the rate, which bounds a step.
double tolerance(double after, double rate) {
  return tol::rounding<float>(after) + 0x1p-19 * rate;
}

}  // namespace

TEST_CASE("two steps are AdamW's, with the settings of every group, clipped") {
  const Config config = every_setting();
  ModelFixture f(config, Recipe::kFp32, kBatch, kSequence);
  std::vector<State> states;
  for (const ParameterRef& p : f.model->parameters()) {
    State state{.name = p.spec->name, .of = {}};
    for (int64_t i = 0; i < p.size(); ++i) state.of.push_back({double(p.master[i]), 0, 0});
    states.push_back(std::move(state));
  }
  int routers = 0, experts = 0, norms = 0, others = 0;
  for (int64_t step = 0; step < 2; ++step) {
    const double share = step == 0 ? 1.0 : 0.25;
    f.gradients();
    const double norm = norm_of(*f.model), clip = std::min(1.0, config.optimizer.clip / norm);
    REQUIRE(clip < 0.9);  // it clips
    std::vector<std::vector<double>> gradients;
    for (const ParameterRef& p : f.model->parameters()) {
      gradients.emplace_back(p.grad.data, p.grad.data + p.size());
    }
    f.optimizer->step(f.on, step, share);
    f.read_back();
    REQUIRE(f.optimizer->gradient_norm() == Approx(norm).epsilon(1e-5));
    REQUIRE(f.optimizer->clip_factor() == Approx(clip).epsilon(1e-5));

    const auto parameters = f.model->parameters();
    for (size_t n = 0; n < parameters.size(); ++n) {
      const ParameterRef& p = parameters[n];
      const Settings s = settings_of(states[n].name, config.optimizer);
      routers += has(states[n].name, "moe.router");
      experts += s.beta2 != config.optimizer.beta2;
      norms += has(states[n].name, "norm");
      others += s.decay > 0 && s.beta2 == config.optimizer.beta2;
      double worst = 0;
      int64_t at = 0;
      for (int64_t i = 0; i < p.size(); ++i) {
        ref::AdamW& want = states[n].of[size_t(i)];
        want.step(clip * gradients[n][size_t(i)], share * s.lr, config.optimizer.beta1, s.beta2,
                  config.optimizer.eps, s.decay, step + 1);
        const double used =
            std::abs(double(p.master[i]) - want.p) / tolerance(want.p, share * s.lr);
        if (used > worst) {
          worst = used;
          at = i;
        }
        want.p = double(p.master[i]);  // the next step begins at what is stored
      }
      INFO(states[n].name << ", step " << step << ", element " << at << ": " << worst
                          << " of the tolerance");
      REQUIRE(worst <= 1);
    }
  }
  REQUIRE(routers == 2);
  REQUIRE(experts >= 4);
  REQUIRE(norms >= 10);
  REQUIRE(others >= 10);
}

}  // namespace assay::test_optimizer
