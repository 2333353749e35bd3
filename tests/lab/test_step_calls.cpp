// The calls that calls_of_step() lists are those that a step of several ranks makes: one by one,
// with the same bytes on every rank.
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/trainer.h"
#include "lab/cluster/step_calls.h"
#include "tests/catch.h"
#include "tests/comm/thread_group.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"
#include "tests/model/model_fixture.h"

namespace assay::test_step_calls {

namespace {

struct Mapping {
  const char* name;
  int ranks;
  int64_t parts;
  const char* recipe;
  bool moe;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat state = StateFormat::kFp32;
  int64_t hidden = 64, vocab = 97;
  int expert_ranks = 1;
  bool bias_rate_auto = false;
};

const std::vector<Mapping> kMappings = {
    {"dense, two", 2, 2, "fp32", false},
    {"dense, three", 3, 3, "bf16", false},
    {"dense, four, two parts each", 4, 8, "bf16", false},
    {"dense, muon", 4, 4, "bf16", false, OptimizerKind::kMuon},
    {"dense, bf16 state", 3, 3, "bf16", false, OptimizerKind::kAdamW, StateFormat::kBf16},
    {"dense, mxfp8", 2, 2, "mxfp8", false},
    {"moe, two", 2, 2, "fp32", true},
    {"moe, three", 3, 6, "bf16", true},
    {"moe, four", 4, 4, "bf16", true},
    {"moe, muon", 2, 4, "fp32", true, OptimizerKind::kMuon},
    {"moe, bf16 state", 4, 4, "bf16", true, OptimizerKind::kAdamW, StateFormat::kBf16},
    {"moe, nvfp4", 3, 3, "nvfp4", true},
    {"two buckets", 2, 2, "bf16", false, OptimizerKind::kAdamW, StateFormat::kFp32, 256, 40000},
    {"shared experts", 3, 3, "bf16", true, OptimizerKind::kAdamW, StateFormat::kFp32, 64, 97, 3},
    {"replicas", 4, 4, "bf16", true, OptimizerKind::kAdamW, StateFormat::kFp32, 64, 97, 2},
    {"replicas, bf16 state", 4, 8, "bf16", true, OptimizerKind::kAdamW, StateFormat::kBf16, 64, 97,
     2},
    {"bias_rate auto", 3, 6, "bf16", true, OptimizerKind::kAdamW, StateFormat::kFp32, 64, 97, 1,
     true},
};

constexpr int64_t kSequence = 16;

Config config_of(const Mapping& m) {
  Config c = small_config(m.vocab);
  c.model.hidden = m.hidden;
  if (m.moe) {
    c.model.moe = six_experts();
    c.model.moe->expert_ffn = 64;  // whole blocks of the formats
    c.model.moe->router.bias_rate = m.bias_rate_auto ? BiasRate::measured() : BiasRate(1e-3);
    if (m.bias_rate_auto) c.model.moe->first_dense_layers = 0;  // the calls of two blocks, in turn
  }
  c.precision.recipe = m.recipe;
  c.precision.bf16_last_layers = 0;
  c.optimizer.kind = m.optimizer;
  c.optimizer.state = m.state;
  c.parallel.parts = m.parts;
  c.parallel.expert_ranks = m.expert_ranks;
  c.run.sequence = kSequence;
  c.run.micro_batch = 1;
  c.run.batch_tokens = m.parts * kSequence;
  c.run.steps = 2;
  c.schedule.warmup = c.schedule.warmdown = 0;
  return c;
}

// Bytes of each call so far, in order, as this rank's group counted them.
class CountedCalls {
 public:
  explicit CountedCalls(Group& group) : group_(group) {
    group.tell_calls([this](uint64_t) {
      bytes_.push_back(int64_t(group_.bytes_sent() - before_));
      before_ = group_.bytes_sent();
    });
  }
  ~CountedCalls() { group_.tell_calls({}); }
  std::vector<int64_t> take() { return std::exchange(bytes_, {}); }

 private:
  Group& group_;
  uint64_t before_ = 0;
  std::vector<int64_t> bytes_;
};

using Over = GroupCall::Over;

std::vector<int64_t> of_rank(const std::vector<GroupCall>& calls, int rank, Over over) {
  std::vector<int64_t> bytes;
  for (const GroupCall& call : calls) {
    if (call.over == over) bytes.push_back(call.sent[size_t(rank)]);
  }
  return bytes;
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t all = 0;
  for (const int64_t v : values) all += v;
  return all;
}

// The calls of one cause, in their order.
std::vector<GroupCall> of_cause(const std::vector<GroupCall>& calls, GroupCall::Cause cause) {
  std::vector<GroupCall> found;
  for (const GroupCall& call : calls) {
    if (call.cause == cause) found.push_back(call);
  }
  return found;
}

// What one rank counted in a plain and in a sampled step, over all ranks and over its replicas.
struct Counted {
  struct Step {
    std::vector<int64_t> all, replicas;
  };
  Step plain, sampled;
};

// Meetings of the ranks of each expert group, and of each group of replicas.
class Meetings {
 public:
  explicit Meetings(const Mapping& m) {
    const int replicas = m.ranks / m.expert_ranks;
    for (int i = 0; i < replicas; ++i) of_experts_.emplace_back(m.expert_ranks);
    for (int i = 0; i < m.expert_ranks; ++i) of_replicas_.emplace_back(replicas);
  }
  ThreadGroup experts(const Layout& l) {
    return {of_experts_[size_t(l.replica())], l.expert_position()};
  }
  ThreadGroup replicas(const Layout& l) {
    return {of_replicas_[size_t(l.expert_position())], l.replica()};
  }

 private:
  std::deque<ThreadMeeting> of_experts_, of_replicas_;
};

Counted train(const Config& config, const std::string& shard, Group& group, Meetings& meetings) {
  const Recipe recipe = resolve_recipe(config.precision.recipe);
  const ModelPlace place{.ranks = group.size(), .rank = group.rank()};
  const Layout layout = layout_of(config, place);
  ThreadGroup experts = meetings.experts(layout), replicas = meetings.replicas(layout);
  const bool share = layout.expert_ranks > 1;
  TrainingMemory memory(config, recipe, place,
                        {.all = &group,
                         .experts = share ? &experts : nullptr,
                         .replicas = share ? &replicas : nullptr,
                         .experts_on_host = share ? &experts : nullptr});
  memory.allocate(config, recipe);
  Exec on{.threads = 1};
  memory.bind(on);
  memory.model->initialise(on, 1);
  memory.model->refresh_weights(on);
  Loader loader({.files = {shard},
                 .batch_tokens = config.run.batch_tokens,
                 .sequence = kSequence,
                 .micro_batch = 1,
                 .rank = group.rank(),
                 .ranks = group.size(),
                 .vocab_size = config.model.vocab_size});
  const TrainingRanks ranks{layout,
                            group,
                            group,
                            *memory.rank_sums,
                            share ? &experts : nullptr,
                            memory.expert_sums.get()};
  Trainer trainer(config, *memory.model, *memory.sums, *memory.optimizer, loader, -1, &ranks);
  CountedCalls calls(group), of_replicas(replicas);
  Counted counted;
  trainer.step(on, 0);
  counted.plain = {calls.take(), of_replicas.take()};
  trainer.step(on, 1, Trainer::Measure::kRatios);
  counted.sampled = {calls.take(), of_replicas.take()};
  return counted;
}

}  // namespace

TEST_CASE("the listed calls of a step are those that its ranks make") {
  const TempFolder folder;
  const std::string shard = folder / "tokens.bin";
  write_shard(shard, counting(0, 2000, 97), 97);
  for (const Mapping& m : kMappings) {
    CAPTURE(m.name);
    const Config config = config_of(m);
    Meetings meetings(m);
    std::vector<Counted> counted(size_t(m.ranks));
    const std::vector<std::string> failed = run_ranks(m.ranks, [&](Group& group) {
      counted[size_t(group.rank())] = train(config, shard, group, meetings);
    });
    REQUIRE(failed == std::vector<std::string>(size_t(m.ranks)));
    // Planned for one rank, without any other.
    TrainingMemory planned(config, resolve_recipe(m.recipe), {.ranks = m.ranks, .rank = 0});
    const std::vector<GroupCall> plain = calls_of_step(config, planned, StepKind::kPlain);
    const std::vector<GroupCall> sampled = calls_of_step(config, planned, StepKind::kSampled);
    for (int rank = 0; rank < m.ranks; ++rank) {
      CAPTURE(rank);
      const Counted& of = counted[size_t(rank)];
      REQUIRE(of.plain.all == of_rank(plain, rank, Over::kAll));
      REQUIRE(of.plain.replicas == of_rank(plain, rank, Over::kReplicas));
      REQUIRE(of.sampled.all == of_rank(sampled, rank, Over::kAll));
      REQUIRE(of.sampled.replicas == of_rank(sampled, rank, Over::kReplicas));
    }
    REQUIRE(bytes_sent(sampled)[0] > bytes_sent(plain)[0]);
    REQUIRE(planned.shards->buckets().size() == (m.vocab > 97 ? 2u : 1u));
  }
}

TEST_CASE("what ranks send, others receive; a call is as long as the busiest rank's") {
  for (const Mapping& m : kMappings) {
    CAPTURE(m.name);
    const Config config = config_of(m);
    TrainingMemory planned(config, resolve_recipe(m.recipe), {.ranks = m.ranks, .rank = 0});
    const std::vector<GroupCall> calls = calls_of_step(config, planned, StepKind::kSampled);
    for (const GroupCall& call : calls) {
      REQUIRE(call.received.size() == call.sent.size());
      REQUIRE(sum(call.received) == sum(call.sent));
    }
    if (m.state != StateFormat::kFp32) continue;
    // Masters come back the way that gradients went, in as much time.
    const auto gradients = of_cause(calls, GroupCall::Cause::kGradients);
    const auto parameters = of_cause(calls, GroupCall::Cause::kParameters);
    REQUIRE(gradients.size() == parameters.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      REQUIRE(gradients[i].sent == parameters[i].received);
      REQUIRE(gradients[i].received == parameters[i].sent);
      REQUIRE(gradients[i].most() == parameters[i].most());
    }
  }
  // Two owners in four ranks: they send less than the others, and receive more.
  const GroupCall uneven{.kind = GroupCall::Kind::kExchange,
                         .cause = GroupCall::Cause::kGradients,
                         .sent = {1, 1, 2, 2},
                         .received = {3, 3, 0, 0}};
  REQUIRE(uneven.most() == 3);
}

}  // namespace assay::test_step_calls
