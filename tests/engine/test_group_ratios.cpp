// grad_ratio and update_ratio against AdamW's own steps.
#include <cmath>
#include <random>

#include "engine/group_ratios.h"
#include "ops/adamw.h"
#include "tests/catch.h"
#include "tests/tolerance.h"

namespace assay {
namespace {

View<float, 1> view(std::vector<float>& values) {
  return {values.data(), {int64_t(values.size())}};
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("the update's norm is that of what a step took off the parameters") {
  for (const float weight_decay : {0.0f, 0.1f}) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const size_t n = 10007;
    std::vector<float> p(n), m(n), v(n), g(n);
    for (size_t i = 0; i < n; ++i) {
      p[i] = 0.02f * normal(random);
      m[i] = v[i] = 0;
    }
    const Exec on{.threads = 3};
    for (int64_t t = 1; t <= 3; ++t) {
      for (float& x : g) x = normal(random);
      const std::vector<float> before = p;
      const AdamW<float> step{.master = view(p),
                              .m = view(m),
                              .v = view(v),
                              .grad = view(g),
                              .lr = 1e-3f,
                              .weight_decay = weight_decay,
                              .step = t};
      adamw<float>(on, step);
      const RatioSquares squares = ratio_squares(on, {.master = view(p),
                                                      .m = view(m),
                                                      .v = view(v),
                                                      .grad = view(g),
                                                      .step = adamw_constants(step)});
      std::vector<double> update, master, grad;
      for (size_t i = 0; i < n; ++i) {
        update.push_back(double(before[i]) - double(p[i]));
        master.push_back(double(p[i]));
        grad.push_back(double(g[i]));
      }
      const GroupRatio ratio = ratio_of(squares);
      CAPTURE(weight_decay, t);
      REQUIRE(ratio.grad == Approx(norm(grad) / norm(master)).epsilon(1e-12));
      // The parameter's own rounding is in the difference, not in the update.
      REQUIRE(ratio.update == Approx(norm(update) / norm(master)).epsilon(1e-5));
    }
  }
}

TEST_CASE("the sums do not depend on the threads") {
  std::vector<float> p(70001), m(70001), v(70001), g(70001);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = normal(random);
    m[i] = normal(random);
    v[i] = m[i] * m[i];
    g[i] = normal(random);
  }
  const RatioTensor tensor{
      .master = view(p),
      .m = view(m),
      .v = view(v),
      .grad = view(g),
      .step = {.decay = 1e-4f,
               .beta1 = 0.9f,
               .rest1 = 0.1f,
               .beta2 = 0.95f,
               .rest2 = 0.05f,
               .step_size = 1e-3f,
               .root_scale = 1.0f,
               .eps = 1e-8f}
  };
  const RatioSquares one = ratio_squares(Exec{.threads = 1}, tensor);
  const RatioSquares four = ratio_squares(Exec{.threads = 4}, tensor);
  REQUIRE(one.grad == four.grad);
  REQUIRE(one.update == four.update);
  REQUIRE(one.master == four.master);
}

TEST_CASE("a group without parameters has no ratio") {
  REQUIRE(std::isnan(ratio_of({}).grad));
  REQUIRE(std::isnan(ratio_of({.grad = 1}).update));
  REQUIRE(ratio_of({.grad = 4, .update = 1, .master = 16}).grad == 0.5);
  REQUIRE(ratio_of({.grad = 4, .update = 1, .master = 16}).update == 0.25);
}

}  // namespace assay
