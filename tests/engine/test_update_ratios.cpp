// grad_ratio and update_ratio against AdamW's own steps.
#include <cmath>
#include <cstring>
#include <random>

#include "engine/update_ratios.h"
#include "ops/adamw.h"
#include "tests/catch.h"
#include "tests/tolerance.h"

namespace assay::test_update_ratios {
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

TEST_CASE("the update's norm is the norm of the parameters' change in a step") {
  for (const float weight_decay : {0.0f, 0.1f}) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const size_t n = 40007;
    std::vector<float> p(n), m(n), v(n), g(n);
    for (size_t i = 0; i < n; ++i) {
      p[i] = 0.02f * normal(random);
      m[i] = v[i] = 0;
    }
    const Exec on{.threads = 3};
    std::vector<double> sums(size_t(3 * adamw_pieces(n)));
    const View<double, 2> pieces{sums.data(), {adamw_pieces(n), 3}};
    for (int64_t t = 1; t <= 3; ++t) {
      for (float& x : g) x = normal(random);
      const std::vector<float> before = p;
      const AdamW<float> step{.master = view(p),
                              .m = view(m),
                              .v = view(v),
                              .grad = view(g),
                              .squares = pieces,
                              .lr = 1e-3f,
                              .weight_decay = weight_decay,
                              .step = t};
      adamw<float>(on, step);
      RatioSquares squares;
      add(squares, pieces);
      std::vector<double> update, master, grad;
      for (size_t i = 0; i < n; ++i) {
        update.push_back(double(before[i]) - double(p[i]));
        master.push_back(double(p[i]));
        grad.push_back(double(g[i]));
      }
      const GroupRatio ratio = ratio_of(squares);
      CAPTURE(weight_decay, t);
      REQUIRE(ratio.grad == Approx(norm(grad) / norm(master)).epsilon(1e-12));
      // The difference of the parameters includes their rounding; the measured update does not.
      REQUIRE(ratio.update == Approx(norm(update) / norm(master)).epsilon(1e-5));
    }
  }
}

TEST_CASE("a sampled step changes no bits, and its sums do not depend on the threads") {
  const size_t n = 70001;
  std::vector<float> grad(n), start(n);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < n; ++i) {
    grad[i] = normal(random);
    start[i] = normal(random);
  }
  struct Result {
    std::vector<float> master, m, v;
    std::vector<bf16> weight;
    std::vector<double> sums;
  };
  const auto stepped = [&](int threads, int64_t pieces) {
    Result r{start, start, std::vector<float>(n, 0.5f), std::vector<bf16>(n),
             std::vector<double>(size_t(3 * pieces))};
    adamw<bf16>(Exec{.threads = threads}, {.master = view(r.master),
                                           .m = view(r.m),
                                           .v = view(r.v),
                                           .weight = {r.weight.data(), {int64_t(n)}},
                                           .grad = view(grad),
                                           .squares = {r.sums.data(), {pieces, 3}},
                                           .lr = 1e-3f,
                                           .weight_decay = 0.1f,
                                           .step = 7});
    return r;
  };
  const int64_t pieces = adamw_pieces(n);
  const Result plain = stepped(2, 0), one = stepped(1, pieces), four = stepped(4, pieces);
  REQUIRE(std::memcmp(plain.master.data(), one.master.data(), n * sizeof(float)) == 0);
  REQUIRE(std::memcmp(plain.m.data(), one.m.data(), n * sizeof(float)) == 0);
  REQUIRE(std::memcmp(plain.v.data(), one.v.data(), n * sizeof(float)) == 0);
  REQUIRE(std::memcmp(plain.weight.data(), one.weight.data(), n * sizeof(bf16)) == 0);
  REQUIRE(one.sums == four.sums);
  REQUIRE(one.sums[3] > 0);
}

TEST_CASE("a group without parameters has no ratio") {
  REQUIRE(std::isnan(ratio_of({}).grad));
  REQUIRE(std::isnan(ratio_of({.grad = 1}).update));
  REQUIRE(ratio_of({.grad = 4, .update = 1, .master = 16}).grad == 0.5);
  REQUIRE(ratio_of({.grad = 4, .update = 1, .master = 16}).update == 0.25);
}

}  // namespace assay::test_update_ratios
