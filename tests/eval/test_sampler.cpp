#include <cmath>
#include <set>
#include <vector>

#include "eval/sampler.h"
#include "tests/catch.h"
#include "tests/tolerance.h"

namespace assay::test_sampler {

namespace {

int32_t drawn(const std::vector<float>& logits, const Sampling& s, int64_t text = 0,
              int64_t position = 0) {
  return sample_token({logits.data(), {int64_t(logits.size())}}, s, text, position);
}

// The ids drawn in 4000 draws. The rarest allowed id below has a share above 0.5%, so it is missed
// once in 10^8.
std::set<int32_t> support(const std::vector<float>& logits, const Sampling& s) {
  std::set<int32_t> ids;
  for (int64_t i = 0; i < 4000; ++i) ids.insert(drawn(logits, s, 0, i));
  return ids;
}

using Ids = std::set<int32_t>;

}  // namespace

TEST_CASE("temperature 0 takes the largest logit, and the first of ties") {
  for (const auto& [logits, id] :
       std::vector<std::pair<std::vector<float>, int32_t>>{{{3}, 0},
                                                           {{1, 5, 2, 5}, 1},
                                                           {{-7, -7, -7}, 0},
                                                           {{0, 1, 2, 3}, 3},
                                                           {{-3e38f, 3e38f, 3e38f, 0}, 1},
                                                           {{-0.0f, 0.0f}, 0}}) {
    for (const Sampling& s : {Sampling{.temperature = 0}, Sampling{.temperature = 0, .top_k = 2},
                              Sampling{.temperature = 0, .top_p = 0.1, .seed = 9}}) {
      REQUIRE(drawn(logits, s, 4, 17) == id);
    }
  }
  // At temperatures near 0 the draw is the largest logit.
  for (int64_t i = 0; i < 100; ++i)
    REQUIRE(drawn({1, 2, 1.5f}, {.temperature = 1e-300}, 0, i) == 1);
}

TEST_CASE("top-k keeps the k largest, and the smaller ids of ties") {
  const std::vector<float> logits{1, 2, 1, 3, 1};
  REQUIRE(support(logits, {.top_k = 1}) == Ids{3});
  REQUIRE(support(logits, {.top_k = 2}) == Ids{1, 3});
  REQUIRE(support(logits, {.top_k = 3}) == Ids{0, 1, 3});
  REQUIRE(support(logits, {.top_k = 4}) == Ids{0, 1, 2, 3});
  REQUIRE(support(logits, {.top_k = 5}) == Ids{0, 1, 2, 3, 4});
  REQUIRE(support(logits, {.top_k = 500}) == Ids{0, 1, 2, 3, 4});
}

TEST_CASE("top-p keeps the fewest largest ids whose shares sum to at least p") {
  const std::vector<float> equal{1, 1, 1, 1};  // shares of exactly a quarter
  REQUIRE(support(equal, {.top_p = 1e-9}) == Ids{0});
  REQUIRE(support(equal, {.top_p = 0.25}) == Ids{0});
  REQUIRE(support(equal, {.top_p = 0.2500001}) == Ids{0, 1});
  REQUIRE(support(equal, {.top_p = 0.5}) == Ids{0, 1});
  REQUIRE(support(equal, {.top_p = 0.75}) == Ids{0, 1, 2});
  REQUIRE(support(equal, {.top_p = 0.9999}) == Ids{0, 1, 2, 3});
  // Shares of about 0.09, 0.67, 0.24.
  const std::vector<float> unequal{0, 2, 1};
  REQUIRE(support(unequal, {.top_p = 0.66}) == Ids{1});
  REQUIRE(support(unequal, {.top_p = 0.67}) == Ids{1, 2});
  REQUIRE(support(unequal, {.top_p = 0.92}) == Ids{0, 1, 2});
  // Of the ids that top-k keeps, 1 has a share of 0.73; a higher temperature spreads the shares.
  REQUIRE(support(unequal, {.top_k = 2, .top_p = 0.73}) == Ids{1});
  REQUIRE(support(unequal, {.temperature = 3, .top_k = 2, .top_p = 0.73}) == Ids{1, 2});
}

TEST_CASE("limits that keep all ids change no draw") {
  std::vector<float> logits;
  for (int i = 0; i < 50; ++i) logits.push_back(float(std::sin(i * 7.0)) * 3);
  for (int64_t i = 0; i < 500; ++i) {
    const int32_t free = drawn(logits, {.temperature = 0.7}, 3, i);
    REQUIRE(drawn(logits, {.temperature = 0.7, .top_k = 50}, 3, i) == free);
    REQUIRE(drawn(logits, {.temperature = 0.7, .top_k = 0, .top_p = 1 - 1e-12}, 3, i) == free);
  }
}

TEST_CASE("a draw is a function of seed, text and position") {
  const std::vector<float> logits(1000, 0.0f);
  const Sampling s{.seed = 42};
  int same_seed = 0, same_text = 0, same_position = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const int32_t id = drawn(logits, s, 5, i);
    REQUIRE(drawn(logits, s, 5, i) == id);
    same_seed += drawn(logits, {.seed = 43}, 5, i) == id;
    same_text += drawn(logits, s, 6, i) == id;
    same_position += drawn(logits, s, 5, i + 1) == id;
  }
  // Draws agree by chance once in 1000; 10 of 200 have a probability below 10^-15.
  REQUIRE(same_seed < 10);
  REQUIRE(same_text < 10);
  REQUIRE(same_position < 10);
}

TEST_CASE("draws have the shares of the softmax") {
  const std::vector<float> logits{0.5f, -1, 2, 2, 0, -3, 1};
  constexpr int kDraws = 20000;
  for (const Sampling& s :
       {Sampling{}, Sampling{.temperature = 0.6, .seed = 2},
        Sampling{.temperature = 1.7, .top_k = 4, .seed = 3}, Sampling{.top_p = 0.8, .seed = 4}}) {
    const Ids kept = support(logits, s);
    double total = 0;
    for (const int32_t v : kept) total += std::exp(double(logits[size_t(v)]) / s.temperature);
    std::vector<double> count(logits.size(), 0.0);
    for (int i = 0; i < kDraws; ++i) count[size_t(drawn(logits, s, 7, i))] += 1;
    double chi_square = 0;
    for (const int32_t v : kept) {
      const double want = kDraws * std::exp(double(logits[size_t(v)]) / s.temperature) / total;
      chi_square += (count[size_t(v)] - want) * (count[size_t(v)] - want) / want;
    }
    INFO("temperature " << s.temperature << ": chi-square " << chi_square << " of " << kept.size());
    REQUIRE(chi_square <= tol::chi_square(double(kept.size()) - 1));
  }
}

}  // namespace assay::test_sampler
