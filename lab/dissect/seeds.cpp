#include "lab/dissect/seeds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "lab/dissect/assignment.h"
#include "models/audit/audit_report.h"

namespace assay {

namespace {

// The experts of a layer that a text uses, ascending.
struct Used {
  explicit Used(const LayerChoices& choices) : index(size_t(choices.experts), -1) {
    std::vector<int64_t> counts(size_t(choices.experts), 0);
    for (const int32_t e : choices.expert) counts[size_t(e)] += 1;
    for (size_t e = 0; e < counts.size(); ++e) {
      if (counts[e] == 0) continue;
      index[e] = int32_t(id.size());
      id.push_back(int32_t(e));
      tokens.push_back(counts[e]);
    }
    if (int64_t(id.size()) <= kMostMatched) return;
    throw UserError(strprintf("the text uses %s experts of layer %ld; at most %s can be matched",
                              grouped(int64_t(id.size())).c_str(), long(choices.layer),
                              grouped(kMostMatched).c_str()),
                    "less text uses fewer: --tokens N");
  }
  size_t size() const { return id.size(); }

  std::vector<int32_t> index;   // (E) -1: not used
  std::vector<int32_t> id;      // (used)
  std::vector<int64_t> tokens;  // (used)
};

class Matcher {
 public:
  // Expert a of run A took expert b of run B.
  struct Row {
    int32_t b = -1;  // index among the used ones; -1: none is left
    int64_t together = 0;
    double similarity = 0;
  };

  Matcher(const LayerChoices& a, const LayerChoices& b)
      : used_a(a), used_b(b), a_(a), b_(b), together_(used_a.size() * used_b.size()) {}

  // Position t of run A beside position order[t] of run B.
  std::vector<Row> match(std::span<const int32_t> order) {
    count(order);
    const size_t columns = used_b.size();
    std::vector<float> similarity(together_.size());
    for (size_t i = 0; i < similarity.size(); ++i) {
      similarity[i] = float(similarity_of(i / columns, i % columns));
    }
    const std::vector<int32_t> of =
        best_assignment(int64_t(used_a.size()), int64_t(columns), similarity);
    std::vector<Row> rows(of.size());
    for (size_t r = 0; r < of.size(); ++r) {
      if (of[r] < 0) continue;
      rows[r] = {.b = of[r],
                 .together = together_[r * columns + size_t(of[r])],
                 .similarity = similarity_of(r, size_t(of[r]))};
    }
    return rows;
  }

  MatchLevel level(std::span<const Row> rows) const {
    MatchLevel level;
    for (const Row& row : rows) {
      level.similarity += row.similarity;
      level.agreement += double(row.together);
    }
    level.similarity /= double(std::min(used_a.size(), used_b.size()));
    level.agreement /= double(a_.expert.size());
    return level;
  }

  const Used used_a, used_b;

 private:
  void count(std::span<const int32_t> order) {
    std::fill(together_.begin(), together_.end(), 0);
    const auto top_k = size_t(a_.top_k);
    for (size_t t = 0; t < order.size(); ++t) {
      const int32_t* const of_a = a_.expert.data() + t * top_k;
      const int32_t* const of_b = b_.expert.data() + size_t(order[t]) * top_k;
      for (size_t i = 0; i < top_k; ++i) {
        int32_t* const row =
            together_.data() + size_t(used_a.index[size_t(of_a[i])]) * used_b.size();
        for (size_t j = 0; j < top_k; ++j) row[used_b.index[size_t(of_b[j])]] += 1;
      }
    }
  }

  double similarity_of(size_t row, size_t column) const {
    const double product = double(used_a.tokens[row]) * double(used_b.tokens[column]);
    return double(together_[row * used_b.size() + column]) / std::sqrt(product);
  }

  const LayerChoices &a_, &b_;
  std::vector<int32_t> together_;  // (used of A, used of B)
};

// Deals the positions of a group out among themselves (Fisher and Yates).
void shuffle(std::span<int32_t> positions, RandomSequence& random) {
  for (size_t left = positions.size(); left > 1; --left) {
    std::swap(positions[left - 1], positions[random.below(uint32_t(left))]);
  }
}

std::vector<int32_t> in_order(size_t n) {
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

RandomSequence random_of(const MatchPlan& plan, const char* what, int64_t i) {
  return RandomSequence({.seed = plan.seed, .stream = stream_id(what), .step = uint32_t(i)});
}

std::vector<int32_t> shuffled(size_t n, const MatchPlan& plan, int64_t i) {
  RandomSequence random = random_of(plan, "dissect.seeds.positions", i);
  std::vector<int32_t> order = in_order(n);
  shuffle(order, random);
  return order;
}

// Among the positions of the same token.
std::vector<int32_t> shuffled_by_token(std::span<const int32_t> token, const MatchPlan& plan,
                                       int64_t i) {
  RandomSequence random = random_of(plan, "dissect.seeds.tokens", i);
  std::vector<int32_t> by_token = in_order(token.size());
  std::stable_sort(by_token.begin(), by_token.end(),
                   [&](int32_t a, int32_t b) { return token[size_t(a)] < token[size_t(b)]; });
  std::vector<int32_t> dealt = by_token;
  for (size_t first = 0; first < dealt.size();) {
    size_t end = first;
    while (end < dealt.size() && token[size_t(dealt[end])] == token[size_t(dealt[first])]) ++end;
    shuffle(std::span(dealt).subspan(first, end - first), random);
    first = end;
  }
  std::vector<int32_t> order(token.size());
  for (size_t at = 0; at < order.size(); ++at) order[size_t(by_token[at])] = dealt[at];
  return order;
}

MatchLevel mean_of(std::span<const MatchLevel> levels) {
  MatchLevel mean;
  const auto n = double(levels.size());
  for (const MatchLevel& level : levels) {
    mean.similarity += level.similarity;
    mean.agreement += level.agreement;
  }
  mean.similarity /= n;
  mean.agreement /= n;
  if (levels.size() < 2) return mean;
  double squares = 0;
  for (const MatchLevel& level : levels) squares += std::pow(level.similarity - mean.similarity, 2);
  mean.similarity_sd = std::sqrt(squares / (n - 1));
  return mean;
}

}  // namespace

int64_t LayerMatch::above_chance() const {
  return std::count_if(pairs.begin(), pairs.end(),
                       [](const ExpertPair& pair) { return pair.above_chance(); });
}

LayerMatch match_experts(const LayerChoices& a, const LayerChoices& b,
                         std::span<const int32_t> token, const MatchPlan& plan) {
  CHECK(!token.empty() && a.top_k > 0 && a.top_k == b.top_k &&
            a.expert.size() == token.size() * size_t(a.top_k) && b.expert.size() == a.expert.size(),
        "%zu and %zu choices, %ld and %ld a position, of %zu positions", a.expert.size(),
        b.expert.size(), long(a.top_k), long(b.top_k), token.size());
  CHECK(plan.shuffles > 0, "%ld shuffles", long(plan.shuffles));
  Matcher matcher(a, b);
  const std::vector<Matcher::Row> rows = matcher.match(in_order(token.size()));
  std::vector<double> highest(rows.size(), 0);
  std::vector<MatchLevel> chance, token_id;
  for (int64_t i = 0; i < plan.shuffles; ++i) {
    const auto by_chance = matcher.match(shuffled(token.size(), plan, i));
    for (size_t r = 0; r < rows.size(); ++r) {
      highest[r] = std::max(highest[r], by_chance[r].similarity);
    }
    chance.push_back(matcher.level(by_chance));
    token_id.push_back(matcher.level(matcher.match(shuffled_by_token(token, plan, i))));
  }

  LayerMatch match{.layer = a.layer,
                   .used_a = int64_t(matcher.used_a.size()),
                   .used_b = int64_t(matcher.used_b.size()),
                   .pairs = {},
                   .matched = matcher.level(rows),
                   .token_id = mean_of(token_id),
                   .chance = mean_of(chance)};
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].b < 0) continue;
    const auto column = size_t(rows[r].b);
    match.pairs.push_back({.a = matcher.used_a.id[r],
                           .b = matcher.used_b.id[column],
                           .tokens_a = matcher.used_a.tokens[r],
                           .tokens_b = matcher.used_b.tokens[column],
                           .together = rows[r].together,
                           .similarity = rows[r].similarity,
                           .chance = highest[r]});
  }
  std::stable_sort(
      match.pairs.begin(), match.pairs.end(),
      [](const ExpertPair& x, const ExpertPair& y) { return x.similarity > y.similarity; });
  return match;
}

}  // namespace assay
