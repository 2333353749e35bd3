// Who owns which elements: random tables of parameters, dealt to up to 24 ranks in buckets of
// several sizes.
#include <algorithm>

#include "base/math.h"
#include "base/random.h"
#include "engine/optimizer_muon.h"
#include "engine/shards.h"
#include "tests/catch.h"

namespace assay::test_shards {

namespace {

using Table = std::vector<ParameterSpec>;

std::vector<const ParameterSpec*> pointers(const Table& table) {
  std::vector<const ParameterSpec*> all;
  for (const ParameterSpec& spec : table) all.push_back(&spec);
  return all;
}

ParameterSpec spec_of(std::vector<int64_t> shape, Role role, std::vector<int64_t> parts = {}) {
  return {.name = "tensor",
          .shape = std::move(shape),
          .role = role,
          .group = ParameterGroup::kDecay,
          .init = Init::kZero,
          .std = 0,
          .parts = std::move(parts)};
}

// Vectors, matrices, stacked matrices and experts, of one element to a few hundred pieces.
Table random_table(RandomSequence& random) {
  const auto size = [&](int64_t most) { return 1 + int64_t(random.below(uint32_t(most))); };
  Table table;
  const int64_t tensors = size(12);
  for (int64_t i = 0; i < tensors; ++i) {
    const bool whole_pieces = random.below(2) == 0;  // else sizes that end anywhere
    const int64_t rows = whole_pieces ? 128 * size(4) : size(700);
    const int64_t cols = whole_pieces ? 128 * size(3) : size(500);
    switch (random.below(5)) {
      case 0:
        table.push_back(spec_of({size(40000)}, Role::kNorm));
        break;
      case 1:
        table.push_back(spec_of({rows, cols}, Role::kEmbedding));
        break;
      case 2:
        table.push_back(spec_of({rows, cols}, Role::kDenseFfn));
        break;
      case 3:  // q, k and v
        table.push_back(spec_of({rows + 2 * 64, cols}, Role::kAttention, {rows, 64, 64}));
        break;
      case 4:
        table.push_back(spec_of({size(9), rows, cols}, Role::kRoutedExpert));
        break;
    }
  }
  return table;
}

int64_t elements_of(const std::vector<Segment>& run) {
  int64_t sum = 0;
  for (const Segment& s : run) sum += s.count;
  return sum;
}

// The elements of each parameter are covered once by the segments of all ranks.
void require_owned_once(const Table& table, const std::vector<Segment>& all) {
  std::vector<int64_t> covered(table.size(), 0);
  std::vector<Segment> sorted = all;
  std::sort(sorted.begin(), sorted.end(), [](const Segment& a, const Segment& b) {
    return a.parameter != b.parameter ? a.parameter < b.parameter : a.first < b.first;
  });
  for (const Segment& s : sorted) {
    REQUIRE(s.count > 0);
    REQUIRE(s.first == covered[s.parameter]);  // a gap or an overlap else
    covered[s.parameter] += s.count;
  }
  for (size_t p = 0; p < table.size(); ++p) REQUIRE(covered[p] == table[p].size());
}

void require_good_cut(const ParameterSpec& spec, OptimizerKind optimizer, int64_t at) {
  if (at == 0 || at == spec.size()) return;
  REQUIRE(at % kShardPiece == 0);
  if (optimizer != OptimizerKind::kMuon || !spec.is_hidden_matrix()) return;
  const std::vector<MuonStack> stacks = muon_stacks(spec);
  const auto in = std::find_if(stacks.begin(), stacks.end(), [&](const MuonStack& s) {
    return at >= s.begin && at <= s.begin + s.size();
  });
  REQUIRE(in != stacks.end());
  REQUIRE((at - in->begin) % (in->rows * in->cols) == 0);
  REQUIRE((at - in->begin) % kShardPiece == 0);  // sums over pieces begin at the stack's first
}

// Ranks one after the other are the gradients' order, the reverse of the parameters', without gaps.
void require_neighbours(const Table& table, const Shards& shards) {
  auto parameter = int64_t(table.size()) - 1;
  int64_t element = 0;
  for (const Shards::Bucket& bucket : shards.buckets()) {
    for (const std::vector<Segment>& run : bucket) {
      for (const Segment& s : run) {
        if (parameter >= 0 && element == table[size_t(parameter)].size()) {
          --parameter;
          element = 0;
        }
        REQUIRE(int64_t(s.parameter) == parameter);
        REQUIRE(s.first == element);
        element += s.count;
      }
    }
  }
  REQUIRE(parameter == 0);
  REQUIRE(element == table[0].size());
}

// The most that one cut leaves together.
int64_t largest_unit(const ParameterSpec& spec, OptimizerKind optimizer) {
  int64_t most = 0, first = 0;
  for (const int64_t cut : shard_cuts(spec, optimizer)) {
    most = std::max(most, cut - first);
    first = cut;
  }
  return most;
}

void require_balance(const Table& table, OptimizerKind optimizer, const Shards& shards) {
  int64_t unit = 0;
  for (const ParameterSpec& spec : table) unit = std::max(unit, largest_unit(spec, optimizer));
  for (const Shards::Bucket& bucket : shards.buckets()) {
    int64_t all = 0, most = 0;
    for (const std::vector<Segment>& run : bucket) {
      all += elements_of(run);
      most = std::max(most, elements_of(run));
    }
    REQUIRE(most <= ceil_div(all, int64_t(shards.ranks())) + unit);
  }
}

}  // namespace

TEST_CASE("every element has one owner, cuts lie between pieces and matrices") {
  RandomSequence random({5, stream_id("shards"), 0});
  int64_t cut_tensors = 0, empty_runs = 0, several_buckets = 0, cut_experts = 0;
  for (int round = 0; round < 200; ++round) {
    const Table table = random_table(random);
    const int ranks = 1 + int(random.below(24));
    const int64_t bucket = std::vector<int64_t>{0, 1, 30000, 200000, 1 << 24}[random.below(5)];
    for (const OptimizerKind optimizer : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
      CAPTURE(round, ranks, bucket, int(optimizer));
      const Shards shards(pointers(table), optimizer, ranks, bucket);
      REQUIRE(shards.ranks() == ranks);
      if (bucket == 0) REQUIRE(shards.buckets().size() == 1);
      several_buckets += shards.buckets().size() > 1;
      std::vector<Segment> in_buckets, of_ranks;
      for (const Shards::Bucket& b : shards.buckets()) {
        REQUIRE(b.size() == size_t(ranks));
        for (const std::vector<Segment>& run : b) {
          in_buckets.insert(in_buckets.end(), run.begin(), run.end());
          empty_runs += run.empty();
        }
      }
      for (int r = 0; r < ranks; ++r) {
        const std::vector<Segment>& own = shards.of(r);
        of_ranks.insert(of_ranks.end(), own.begin(), own.end());
        // of() joins what the buckets list, and nothing that belongs to another rank.
        int64_t sum = 0;
        for (const Shards::Bucket& b : shards.buckets()) sum += elements_of(b[size_t(r)]);
        REQUIRE(elements_of(own) == sum);
        for (const Segment& s : own) {
          require_good_cut(table[s.parameter], optimizer, s.first);
          require_good_cut(table[s.parameter], optimizer, s.first + s.count);
          const bool cut = s.count < table[s.parameter].size();
          cut_tensors += cut;
          cut_experts += cut && optimizer == OptimizerKind::kMuon &&
                         table[s.parameter].role == Role::kRoutedExpert;
        }
      }
      require_owned_once(table, in_buckets);
      require_owned_once(table, of_ranks);
      require_neighbours(table, shards);
      require_balance(table, optimizer, shards);
    }
  }
  // What the rounds are for has been drawn.
  REQUIRE(cut_tensors > 1000);
  REQUIRE(cut_experts > 20);
  REQUIRE(empty_runs > 100);
  REQUIRE(several_buckets > 100);
}

TEST_CASE("one rank owns whole tensors") {
  RandomSequence random({6, stream_id("shards"), 0});
  for (int round = 0; round < 20; ++round) {
    const Table table = random_table(random);
    for (const int64_t bucket : {int64_t{0}, int64_t{20000}}) {
      const Shards shards(pointers(table), OptimizerKind::kMuon, 1, bucket);
      REQUIRE(shards.of(0).size() == table.size());
      for (size_t p = 0; p < table.size(); ++p) {
        REQUIRE(shards.of(0)[p] == Segment{.parameter = p, .first = 0, .count = table[p].size()});
      }
    }
  }
}

TEST_CASE("ranks share one tensor of four pieces and a rest") {
  const Table table{spec_of({4 * kShardPiece + 5}, Role::kNorm)};
  const Shards shards(pointers(table), OptimizerKind::kAdamW, 2, 0);
  REQUIRE(shards.of(0) == std::vector<Segment>{{0, 0, 2 * kShardPiece}});
  REQUIRE(shards.of(1) == std::vector<Segment>{{0, 2 * kShardPiece, 2 * kShardPiece + 5}});
}

}  // namespace assay::test_shards
