#include <cmath>
#include <vector>

#include "base/random.h"
#include "data/ngram.h"
#include "tests/catch.h"
#include "tests/tolerance.h"

namespace assay::test_ngram {
namespace {

View<const int32_t, 1> view(const std::vector<int32_t>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}};
}

std::vector<int32_t> random_tokens(uint64_t seed, int count, uint32_t vocab) {
  RandomSequence random({seed, stream_id("ngram test"), 0});
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    const uint32_t a = random.below(vocab), b = random.below(vocab);
    tokens.push_back(static_cast<int32_t>(std::min(a, b)));
  }
  return tokens;
}

}  // namespace

TEST_CASE("every order is a distribution for every context") {
  constexpr int kVocab = 7;
  const auto train = random_tokens(1, 300, kVocab);
  const NgramModel model(4, kVocab, view(train));
  const auto check_after = [&](const std::vector<int32_t>& history) {
    for (int order = 1; order <= 4; ++order) {
      double sum = 0;
      for (int w = 0; w < kVocab; ++w) {
        auto gram = history;
        gram.push_back(w);
        const double p = model.probability(order, view(gram));
        REQUIRE(p > 0);
        sum += p;
      }
      REQUIRE(std::abs(sum - 1) <= tol::sum_in_double(8 * kVocab, 1));
    }
  };
  check_after({});
  check_after({train[0]});
  check_after({train[0], train[1], train[2]});
  check_after({6, 6, 6});
  check_after({5, 0, 0, 0, 0});
}

TEST_CASE("probabilities match a count by hand") {
  // a b a b a c: counts a 3, b 2, c 1; D_1 = 1 / (1 + 2) = 1/3, three types.
  const std::vector<int32_t> train = {0, 1, 0, 1, 0, 2};
  const NgramModel model(2, 4, view(train));
  const double unigram_a = (3 - 1.0 / 3) / 6 + (1.0 / 3) * 3 / 6 / 4;
  REQUIRE(std::abs(model.probability(1, view({0})) - unigram_a) <= tol::sum_in_double(8, 1));
  // Pairs ab 2, ba 2, ac 1: D_2 = 1 / (1 + 4) = 1/5. Each word follows one other word: one
  // continuation each, and counts of one only: D = 1, so Q_1 is 3/3 of the uniform 1/4.
  REQUIRE(std::abs(model.probability(2, view({0, 1})) - ((2 - 0.2) / 3 + 0.2 * 2 / 3 * 0.25)) <=
          tol::sum_in_double(8, 1));
  REQUIRE(std::abs(model.probability(2, view({0, 3})) - 0.2 * 2 / 3 * 0.25) <=
          tol::sum_in_double(8, 1));
  // Nothing was seen after c.
  REQUIRE(std::abs(model.probability(2, view({2, 0})) - 0.25) <= tol::sum_in_double(8, 1));
}

TEST_CASE(
    "on independent draws no order beats the entropy, on a cycle every order above one does") {
  const auto train = random_tokens(1, 200000, 16), val = random_tokens(2, 20000, 16);
  double entropy = 0;
  for (int w = 0; w < 16; ++w) {
    const double p = (2 * (16 - w) - 1) / 256.0;
    entropy -= p * std::log(p);
  }
  const auto nats = NgramModel(3, 16, view(train)).losses(view(val));
  // Allows four standard errors of the validation mean, plus the cost of estimating 4,096 trigrams
  // from 200,000 tokens.
  for (const double n : nats)
    REQUIRE(std::abs(n - entropy) < 4 / std::sqrt(20000.0) + 4096 / 200000.0);

  std::vector<int32_t> cycle;
  for (int i = 0; i < 5000; ++i) cycle.push_back(i % 10);
  const auto known = NgramModel(3, 10, view(cycle)).losses(view(cycle));
  REQUIRE(std::abs(known[0] - std::log(10.0)) < 1e-3);
  REQUIRE(known[1] < 0.01);
  REQUIRE(known[2] < 0.01);
}

}  // namespace assay::test_ngram
