// parallel.expert_ranks, with ranks as threads: which rows go where and in how many rounds, for
// loads of every kind; and whole micro-batches, whose activations and gradients have the bits of
// ranks that have all experts.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "models/decoder/expert_exchange.h"
#include "models/decoder/training_memory.h"
#include "tests/catch.h"
#include "tests/comm/thread_group.h"
#include "tests/model/model_fixture.h"

namespace assay::test_expert_exchange {

namespace {

using Loads = std::vector<std::vector<int32_t>>;  // of each rank, of each expert

struct Exchanged {
  int64_t rounds = 0;
  std::vector<std::vector<float>> seen;  // by source: rows as the rank's experts saw them
  std::vector<int32_t> per_expert;       // rows of each of its experts
  bool came_back = true, fits = true;
};

// Slot i of rank r has the value 1000 r + i; experts add 0.5.
std::vector<Exchanged> exchanged(const Loads& loads, int64_t rows) {
  const int ranks = int(loads.size());
  const auto experts = int64_t(loads.front().size());
  std::vector<Exchanged> all(loads.size());
  const auto failed = run_ranks(ranks, [&](Group& group) {
    const int me = group.rank();
    Exchanged& out = all[size_t(me)];
    ExpertExchange exchange({.ranks = ranks, .rank = me, .parts = ranks, .expert_ranks = ranks},
                            {.experts = &group, .experts_on_host = &group}, experts, rows);
    int64_t most_slots = 0;
    for (const auto& load : loads) {
      most_slots = std::max(most_slots, std::accumulate(load.begin(), load.end(), int64_t{}));
    }
    MemoryPlan plan;
    exchange.plan(plan, "exchange", most_slots, Backend::kCpu);
    plan.allocate();
    std::vector<int32_t> offsets{0};
    for (const int32_t n : loads[size_t(me)]) offsets.push_back(offsets.back() + n);
    const int64_t slots = offsets.back();
    std::vector<float> sent(static_cast<size_t>(2 * slots)), back(sent.size(), -1.0f);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = 1000.0f * float(me) + float(i / 2);
    std::vector<float> received(static_cast<size_t>(2 * rows));
    const View<float, 2> there{received.data(), {rows, 2}};
    out.seen.resize(loads.size());
    out.per_expert.assign(static_cast<size_t>(experts / ranks), 0);
    exchange.route({}, {offsets.data(), {experts + 1}});
    out.rounds = exchange.rounds();
    for (int64_t round = 0; round < out.rounds; ++round) {
      exchange.to_experts<float>({}, round, {sent.data(), {slots, 2}}, there);
      const auto& sources = exchange.sources(round);
      for (size_t s = 0; s < sources.size(); ++s) {
        out.fits &= sources[s].first + sources[s].count <= rows &&
                    sources[s].offsets[experts / ranks] == sources[s].count;
        for (int64_t e = 0; e < experts / ranks; ++e) {
          out.per_expert[size_t(e)] += sources[s].offsets[e + 1] - sources[s].offsets[e];
        }
        for (int64_t i = sources[s].first; i < sources[s].first + sources[s].count; ++i) {
          out.seen[s].push_back(there.at(i, 0));
          for (int64_t k = 0; k < 2; ++k) there.at(i, k) += 0.5f;
        }
      }
      exchange.from_experts<float>({}, round, there, {back.data(), {slots, 2}});
    }
    for (size_t i = 0; i < sent.size(); ++i) out.came_back &= back[i] == sent[i] + 0.5f;
  });
  for (const std::string& why : failed) REQUIRE(why == "");
  return all;
}

void check_exchange(const Loads& loads, int64_t rows, int64_t rounds) {
  const std::vector<Exchanged> all = exchanged(loads, rows);
  const size_t local = loads.front().size() / loads.size();
  for (size_t to = 0; to < loads.size(); ++to) {
    REQUIRE(all[to].rounds == rounds);
    REQUIRE((all[to].came_back && all[to].fits));
    std::vector<int32_t> per_expert(local, 0);
    for (size_t from = 0; from < loads.size(); ++from) {
      // The run of slots of the rank's experts, in their order, nothing lost and nothing twice.
      std::vector<float> expected;
      int32_t slot = 0;
      for (size_t e = 0; e < loads[from].size(); ++e) {
        for (int32_t i = 0; i < loads[from][e]; ++i, ++slot) {
          if (e / local == to) expected.push_back(1000.0f * float(from) + float(slot));
        }
        if (e / local == to) per_expert[e % local] += loads[from][e];
      }
      REQUIRE(all[to].seen[from] == expected);
    }
    REQUIRE(all[to].per_expert == per_expert);
  }
}

constexpr int64_t kBatch = 4, kSequence = 24;

Config config_of(const std::string& recipe, int64_t ranks, int64_t expert_ranks, double rows) {
  Config c = small_config(97);
  c.model.moe = six_experts();
  c.model.moe->experts = 8;
  c.model.moe->router.bias_rate = 1e-3;
  c.model.moe->router.aux = RouterAux::kGates;
  c.model.moe->router.aux_alpha = 0.02;
  c.precision.recipe = recipe;
  c.run.batch_tokens = kBatch * kSequence;
  c.run.sequence = kSequence;
  c.run.micro_batch = kBatch / ranks;
  c.parallel.parts = ranks;
  c.parallel.expert_ranks = expert_ranks;
  c.parallel.expert_rows = rows;
  return c;
}

// What the first micro-batch of a rank gives: its gradients by parameter, and the nats of tokens.
struct Computed {
  std::map<std::string, std::vector<float>> gradient;
  std::vector<float> nats;
  int64_t rounds = 0;
};

// bias: of expert 0 in the selection, so that it gets every token where it is large.
Computed compute(const Config& c, Group* experts, int ranks, int rank, float bias) {
  const Recipe recipe = resolve_recipe(c.precision.recipe);
  TrainingMemory memory(c, recipe, {.ranks = ranks, .rank = rank},
                        {.experts = experts, .experts_on_host = experts});
  memory.allocate(c, recipe);
  Exec on;
  memory.bind(on);
  Model& model = *memory.model;
  model.initialise(on, 1);
  for (TensorRef& t : model.tensors()) {
    if (t.name.ends_with("moe.bias")) static_cast<float*>(t.data)[0] = bias;
  }
  model.refresh_weights(on);
  RandomSequence random({11, stream_id("tokens"), 0});
  std::vector<int32_t> token;
  for (int64_t i = 0; i <= kBatch * kSequence; ++i) token.push_back(int32_t(random.below(97)));
  const int64_t own = c.run.micro_batch * kSequence, first = rank * own;
  const TokenBatch batch{.token = {token.data() + first, {own}},
                         .target = {token.data() + first + 1, {own}},
                         .batch = c.run.micro_batch,
                         .sequence = kSequence};
  Computed out;
  out.nats.resize(size_t(own));
  model.evaluate(on, batch, {out.nats.data(), {own}});
  model.begin_step(on, {.loss = 1.0f / float(kBatch * kSequence),
                        .micro_share = 1.0f / float(ranks),
                        .first_micro = rank});
  model.forward_backward(on, batch);
  model.read_back(on);
  for (const RouterLayerState& s : model.router_layers()) {
    out.rounds = std::max(out.rounds, s.exchange_rounds);
  }
  for (const ParameterRef& p : model.parameters()) {
    out.gradient[p.spec->name].assign(p.grad.data, p.grad.data + p.size());
  }
  return out;
}

// The gradients that the experts of a share get from the ranks of a group: the tree over the ranks.
std::vector<float> tree(const std::vector<Computed>& ranks, const std::string& name, size_t begin,
                        size_t end) {
  if (end - begin == 1) return ranks[begin].gradient.at(name);
  const size_t middle = begin + (end - begin) / 2;
  std::vector<float> low = tree(ranks, name, begin, middle);
  const std::vector<float> high = tree(ranks, name, middle, end);
  for (size_t i = 0; i < low.size(); ++i) low[i] += high[i];
  return low;
}

bool same_bits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

struct Differences {
  bool bits = true;
  double largest = 0;  // relative to the largest element of the tensor
};

// How ranks that share the experts differ from those that have all. factor: planted on the
// gradients of the experts.
Differences differences(const std::string& recipe, int ranks, double rows, float bias,
                        int64_t least_rounds, float factor = 1.0f) {
  std::vector<Computed> alone, shared(size_t{4});
  for (int r = 0; r < ranks; ++r) {
    alone.push_back(compute(config_of(recipe, ranks, 1, 1), nullptr, ranks, r, bias));
  }
  const auto failed = run_ranks(ranks, [&](Group& group) {
    const Config c = config_of(recipe, ranks, ranks, rows);
    shared[size_t(group.rank())] = compute(c, &group, ranks, group.rank(), bias);
  });
  for (const std::string& why : failed) REQUIRE(why == "");
  Differences found;
  for (size_t r = 0; r < alone.size(); ++r) {
    REQUIRE(shared[r].rounds >= least_rounds);
    found.bits &= same_bits(shared[r].nats.data(), alone[r].nats);
    for (auto& [name, mine] : shared[r].gradient) {
      const bool routed = name.ends_with("moe.gate_up") || name.ends_with("moe.down");
      std::vector<float> whole =
          routed ? tree(alone, name, 0, alone.size()) : alone[r].gradient.at(name);
      const float* const expected = whole.data() + (routed ? r * mine.size() : 0);
      if (routed) {
        for (float& g : mine) g *= factor;
      }
      found.bits &= same_bits(expected, mine);
      float largest = 0, apart = 0;
      for (size_t i = 0; i < mine.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        apart = std::max(apart, std::abs(expected[i] - mine[i]));
      }
      if (largest > 0) found.largest = std::max(found.largest, double(apart) / double(largest));
    }
  }
  return found;
}

}  // namespace

TEST_CASE("rows go to the ranks of their experts and back") {
  check_exchange({{3, 3, 3, 3}, {3, 3, 3, 3}}, 12, 1);      // even
  check_exchange({{12, 0, 0, 0}, {12, 0, 0, 0}}, 12, 2);    // one expert takes all
  check_exchange({{5, 7, 0, 0}, {1, 11, 0, 0}}, 3, 8);      // one rank takes all
  check_exchange({{0, 0, 0, 0}, {4, 1, 2, 5}}, 12, 1);      // a source without rows
  check_exchange({{0, 0, 4, 8}, {0, 0, 6, 6}}, 24, 1);      // a rank without rows
  check_exchange({{0, 0}, {0, 0}}, 1, 1);                   // nothing at all
  check_exchange({{1, 0, 2}, {0, 5, 1}, {7, 0, 0}}, 2, 4);  // three ranks, rounds cut sources
  check_exchange({{9, 1, 0, 2}, {0, 0, 0, 0}, {4, 4, 4, 4}, {0, 1, 0, 30}}, 5, 8);
}

TEST_CASE("random loads lose no row") {
  RandomSequence random({3, stream_id("loads"), 0});
  for (int i = 0; i < 60; ++i) {
    const size_t ranks = 2 + random.below(3), local = 1 + random.below(3);
    Loads loads(ranks, std::vector<int32_t>(ranks * local));
    for (auto& of_rank : loads) {
      for (int32_t& n : of_rank) n = random.below(3) == 0 ? 0 : int32_t(random.below(9));
    }
    const int64_t rows = 1 + int64_t(random.below(40));
    int64_t most = 0;
    for (size_t to = 0; to < ranks; ++to) {
      int64_t received = 0;
      for (const auto& of_rank : loads) {
        for (size_t e = 0; e < local; ++e) received += of_rank[to * local + e];
      }
      most = std::max(most, received);
    }
    check_exchange(loads, rows, std::max<int64_t>(1, (most + rows - 1) / rows));
  }
}

TEST_CASE("one round has the bits of experts that are not shared") {
  for (const char* recipe : {"fp32", "bf16"}) {
    for (const int ranks : {2, 4}) {
      INFO(recipe << " on " << ranks << " ranks");
      REQUIRE(differences(recipe, ranks, 4, 0, 1).bits);
      // Expert 0 is chosen by every token; the other choice stays as it was.
      REQUIRE(differences(recipe, ranks, 4, 100, 1).bits);
    }
  }
}

TEST_CASE("more rounds change only the order of the experts' sums") {
  // In fp32 a sum of at most 96 products, added in another order.
  const Differences rounds = differences("fp32", 4, 0.2, 100, 5);
  REQUIRE(rounds.largest < 96 * 0x1p-23);
}

TEST_CASE("a factor on the gradients of the experts is noticed") {
  const Differences planted = differences("fp32", 2, 4, 0, 1, 0.5f);
  REQUIRE(!planted.bits);
  REQUIRE(planted.largest > 0.4);
}

}  // namespace assay::test_expert_exchange
