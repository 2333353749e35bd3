// The experts of two runs matched: the assignment against all permutations, planted copies, and
// runs that have nothing in common.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "lab/dissect/assignment.h"
#include "lab/dissect/seeds.h"
#include "tests/catch.h"

namespace assay::test_dissect_seeds {

namespace {

using Ids = std::vector<int32_t>;

double total(const Ids& column, int64_t columns, const std::vector<float>& similarity) {
  double sum = 0;
  for (size_t r = 0; r < column.size(); ++r) {
    if (column[r] >= 0) sum += double(similarity[r * size_t(columns) + size_t(column[r])]);
  }
  return sum;
}

// The largest total of min(rows, columns) pairs, over all ways to choose them.
double best_by_trying(int64_t rows, int64_t columns, const std::vector<float>& similarity) {
  // Columns in every order; those beyond `columns` stand for none.
  Ids column(size_t(std::max(rows, columns)));
  std::iota(column.begin(), column.end(), 0);
  double best = -1e9;
  do {
    Ids of(column.begin(), column.begin() + rows);
    for (int32_t& c : of) c = c < columns ? c : -1;
    best = std::max(best, total(of, columns, similarity));
  } while (std::next_permutation(column.begin(), column.end()));
  return best;
}

// min(rows, columns) rows have a column, each another.
bool is_matching(const Ids& column, int64_t columns) {
  std::vector<int> taken(size_t(columns), 0);
  int64_t matched = 0;
  for (const int32_t c : column) {
    if (c < 0) continue;
    if (c >= columns || ++taken[size_t(c)] > 1) return false;
    ++matched;
  }
  return matched == std::min(int64_t(column.size()), columns);
}

}  // namespace

TEST_CASE("an assignment is the best of all permutations") {
  RandomSequence random({.seed = 3, .stream = stream_id("assignment")});
  for (int round = 0; round < 300; ++round) {
    const int64_t rows = 1 + random.below(6), columns = 1 + random.below(6);
    // Real numbers, numbers with many ties, and mostly zeros.
    std::vector<float> similarity(size_t(rows * columns));
    for (float& s : similarity) {
      s = round % 3 == 0   ? float(random.uniform())
          : round % 3 == 1 ? float(random.below(3))
                           : float(random.below(5) == 0);
      if (round % 2 == 0) s -= 0.5f;  // negative ones too
    }
    const Ids column = best_assignment(rows, columns, similarity);
    INFO("round " << round << ", " << rows << " x " << columns);
    REQUIRE(int64_t(column.size()) == rows);
    REQUIRE(is_matching(column, columns));
    REQUIRE(total(column, columns, similarity) ==
            Approx(best_by_trying(rows, columns, similarity)).margin(1e-6));
  }
}

TEST_CASE("an assignment gives up the best pair for a better sum") {
  REQUIRE(best_assignment(2, 2, std::vector<float>{9, 8, 8, 1}) == Ids{1, 0});
  REQUIRE(best_assignment(3, 1, std::vector<float>{1, 4, 2}) == Ids{-1, 0, -1});
  REQUIRE(best_assignment(0, 0, {}).empty());
  // A permutation of 300 under noise that is smaller.
  const int64_t n = 300;
  RandomSequence random({.seed = 5, .stream = stream_id("assignment")});
  Ids planted(n);
  std::iota(planted.begin(), planted.end(), 0);
  for (size_t i = size_t(n) - 1; i > 0; --i) {
    std::swap(planted[i], planted[random.below(uint32_t(i + 1))]);
  }
  std::vector<float> similarity(size_t(n * n));
  for (float& s : similarity) s = float(0.9 * random.uniform());
  for (size_t r = 0; r < size_t(n); ++r) similarity[r * size_t(n) + size_t(planted[r])] = 1;
  REQUIRE(best_assignment(n, n, similarity) == planted);
}

namespace {

constexpr int64_t kExperts = 12, kTopK = 2, kTokens = 4000;

// Draws K experts for each position; expert e has weight 1 / (1 + e), so that loads are uneven.
LayerChoices drawn(uint64_t seed, int64_t experts = kExperts) {
  RandomSequence random({.seed = seed, .stream = stream_id("choices")});
  LayerChoices choices{.layer = 1, .experts = experts, .top_k = kTopK, .expert = {}};
  while (choices.expert.size() < size_t(kTokens * kTopK)) {
    const auto e = int32_t(random.below(uint32_t(experts)));
    if (random.uniform() * (1 + e) > 1) continue;
    if (choices.expert.size() % 2 == 1 && choices.expert.back() == e) continue;
    choices.expert.push_back(e);
  }
  return choices;
}

// Every token is another one.
std::vector<int32_t> distinct_tokens() {
  std::vector<int32_t> token(size_t{kTokens});
  std::iota(token.begin(), token.end(), 0);
  return token;
}

// Every token is the same, so that both levels shuffle all.
std::vector<int32_t> equal_tokens() {
  return std::vector<int32_t>(size_t{kTokens}, 7);
}

LayerChoices renamed(LayerChoices choices, const std::function<int32_t(int32_t)>& name) {
  for (int32_t& e : choices.expert) e = name(e);
  return choices;
}

}  // namespace

TEST_CASE("similarity, agreement and levels by hand") {
  // Experts of A have positions {0, 1, 2}, {3}; of B {3, 4}... with K = 1 and an unused expert.
  const LayerChoices a{.layer = 4, .experts = 3, .top_k = 1, .expert = {0, 0, 0, 1}};
  const LayerChoices b{.layer = 4, .experts = 3, .top_k = 1, .expert = {2, 2, 0, 0}};
  const LayerMatch m = match_experts(a, b, Ids{5, 5, 5, 5}, {.shuffles = 50});
  REQUIRE((m.layer == 4 && m.used_a == 2 && m.used_b == 2 && m.pairs.size() == 2));
  // 0 is 2: 2 / sqrt(3 * 2); 1 is 0: 1 / sqrt(1 * 2).
  const ExpertPair &first = m.pairs[0], &second = m.pairs[1];
  REQUIRE((first.a == 0 && first.b == 2 && first.together == 2));
  REQUIRE((second.a == 1 && second.b == 0 && second.tokens_a == 1 && second.tokens_b == 2));
  REQUIRE(first.similarity == Approx(2 / std::sqrt(6.0)).epsilon(1e-12));
  REQUIRE(second.similarity == Approx(1 / std::sqrt(2.0)).epsilon(1e-12));
  REQUIRE(m.matched.similarity == Approx((2 / std::sqrt(6.0) + 1 / std::sqrt(2.0)) / 2));
  REQUIRE(m.matched.agreement == 0.75);
  // Whatever the order, expert 1 finds its one position in either expert of B.
  REQUIRE(m.chance.similarity == Approx(m.matched.similarity));
  REQUIRE(m.chance.similarity_sd.value() == Approx(0).margin(1e-12));
  REQUIRE(m.above_chance() == 0);
  REQUIRE(!match_experts(a, b, Ids{5, 5, 5, 5}, {.shuffles = 1}).chance.similarity_sd);
}

TEST_CASE("a renamed copy is found, with similarity 1") {
  const LayerChoices a = drawn(1);
  const LayerChoices b = renamed(a, [](int32_t e) { return int32_t((e * 5 + 3) % kExperts); });
  const LayerMatch m = match_experts(a, b, equal_tokens(), {});
  REQUIRE((m.pairs.size() == kExperts && m.above_chance() == kExperts));
  for (const ExpertPair& pair : m.pairs) {
    REQUIRE(pair.b == (pair.a * 5 + 3) % kExperts);
    REQUIRE(pair.similarity == 1);
    REQUIRE((pair.tokens_a == pair.together && pair.tokens_b == pair.together));
  }
  REQUIRE((m.matched.similarity == 1 && m.matched.agreement == 1));
  REQUIRE((m.chance.similarity < 0.5 && m.token_id.similarity < 0.5));
}

TEST_CASE("runs that have nothing in common are at chance") {
  int64_t above = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const LayerMatch m = match_experts(drawn(10 + seed), drawn(100 + seed), equal_tokens(), {});
    above += m.above_chance();
    const double sd = m.chance.similarity_sd.value();
    INFO("seed " << seed << ": " << m.matched.similarity << ", " << m.chance.similarity);
    REQUIRE((sd > 0 && sd < 0.02));
    REQUIRE(std::fabs(m.matched.similarity - m.chance.similarity) < 4 * sd);
    // Two levels of the same shuffling.
    REQUIRE(std::fabs(m.token_id.similarity - m.chance.similarity) < 4 * sd);
    REQUIRE(m.matched.similarity > 0.1);  // what an assignment finds where there is nothing
  }
  // Of 120 pairs one in twenty.
  REQUIRE((above >= 1 && above <= 15));
}

TEST_CASE("one shared expert is found among others that are not") {
  const LayerChoices a = drawn(1);
  LayerChoices b = drawn(2);
  // Where A chose 4, B chooses 9, and nowhere else.
  for (size_t i = 0; i < b.expert.size(); i += 2) {
    int32_t *const first = &b.expert[i], *const second = first + 1;
    const bool both = a.expert[i] == 4 || a.expert[i + 1] == 4;
    if (*first == 9) *first = *second == 0 ? 1 : 0;
    if (*second == 9) *second = *first == 0 ? 1 : 0;
    if (both) *first = 9;
  }
  const LayerMatch m = match_experts(a, b, equal_tokens(), {});
  REQUIRE((m.pairs[0].a == 4 && m.pairs[0].b == 9 && m.pairs[0].similarity == 1));
  REQUIRE(m.pairs[0].above_chance());
  REQUIRE((m.pairs[1].similarity < 0.6 && m.above_chance() <= 4));
}

TEST_CASE("what a token's id explains is not chance") {
  // 40 ids; both runs have a table of experts by id, of other names.
  std::vector<int32_t> token(size_t{kTokens});
  LayerChoices a{.layer = 0, .experts = kExperts, .top_k = 1, .expert = {}};
  for (size_t t = 0; t < token.size(); ++t) {
    token[t] = int32_t(random_word({.seed = 1}, t) % 40);
    a.expert.push_back(token[t] * 7 % int32_t(kExperts));
  }
  const LayerChoices b = renamed(a, [](int32_t e) { return int32_t(kExperts - 1 - e); });
  const LayerMatch by_table = match_experts(a, b, token, {});
  REQUIRE((by_table.matched.similarity == 1 && by_table.token_id.similarity == 1));
  REQUIRE(by_table.chance.similarity < 0.5);
  // A token that is there once stays where it is.
  const LayerMatch rare = match_experts(a, b, distinct_tokens(), {});
  REQUIRE((rare.token_id.similarity == 1 && rare.token_id.agreement == 1));
  // Choices by position: the id explains nothing.
  for (size_t t = 0; t < token.size(); ++t) a.expert[t] = int32_t(t / 10 % kExperts);
  const LayerMatch by_place = match_experts(a, a, token, {});
  REQUIRE((by_place.matched.similarity == 1 && by_place.token_id.similarity < 0.5));
}

TEST_CASE("runs that use unequal numbers of experts") {
  const LayerChoices a = drawn(1);
  const LayerChoices b = renamed(a, [](int32_t e) { return e >= 9 ? 8 : e; });
  for (const bool more_in_a : {true, false}) {
    const LayerMatch m = match_experts(more_in_a ? a : b, more_in_a ? b : a, equal_tokens(), {});
    REQUIRE(m.used_a == (more_in_a ? 12 : 9));
    REQUIRE(m.used_b == (more_in_a ? 9 : 12));
    REQUIRE(m.pairs.size() == 9);
    REQUIRE((m.pairs[7].similarity == 1 && m.pairs[7].a == m.pairs[7].b));
    REQUIRE((m.pairs[8].similarity > 0.4 && m.pairs[8].similarity < 1));
    REQUIRE(m.matched.similarity == Approx((8 + m.pairs[8].similarity) / 9));  // of the pairs
  }
  LayerChoices wide{.layer = 2, .experts = 2 * kMostMatched, .top_k = 1, .expert = {}};
  for (int32_t e = 0; e <= kMostMatched; ++e) wide.expert.push_back(e);
  const Ids token(wide.expert.size(), 0);
  REQUIRE_THROWS_AS(match_experts(wide, wide, token, {}), UserError);
}

TEST_CASE("the same shuffles give the same answer") {
  const auto json = [](uint64_t seed) {
    const SeedsReport report{
        .runs = {{.run = "a", .checkpoint = "a/1", .checkpoint_sha256 = "0", .step = 5, .seed = 1},
                 {.run = "b", .checkpoint = "b/1", .checkpoint_sha256 = "1", .step = 5, .seed = 2}},
        .text_sha256 = "2",
        .experts = kExperts,
        .top_k = kTopK,
        .tokens = kTokens,
        .shuffles = 19,
        .differences = {"optimizer.lr"},
        .pairs = {{.a = 0,
                   .b = 1,
                   .layers = {match_experts(drawn(1), drawn(2), equal_tokens(),
                                            {.shuffles = 19, .seed = seed})}}}};
    REQUIRE_THAT(seeds_text(report), Catch::Matchers::ContainsSubstring("12 pairs of experts") &&
                                         Catch::Matchers::ContainsSubstring("optimizer.lr"));
    return seeds_json(report).dump();
  };
  REQUIRE(json(0) == json(0));
  REQUIRE(json(0) != json(1));
}

}  // namespace assay::test_dissect_seeds
