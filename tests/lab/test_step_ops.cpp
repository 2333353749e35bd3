// What expert ranks change of the listed ops of a step, against a profile of a micro-batch.
#include "cuda/profile.h"
#include "lab/cluster/step_ops.h"
#include "models/decoder/training_memory.h"
#include "models/parameters/table.h"
#include "tests/catch.h"
#include "tests/comm/thread_group.h"
#include "tests/lab/op_sums.h"
#include "tests/model/model_fixture.h"

namespace assay::test_step_ops {

namespace {

constexpr int64_t kSequence = 24, kVocabulary = 97;

// Two MoE blocks; one sequence a rank, of whose tokens each expert group takes every row at once.
Config config_of(int ranks) {
  Config c = small_config(kVocabulary);
  c.model.moe = six_experts();
  c.model.moe->experts = 12;
  c.model.moe->first_dense_layers = 0;
  c.precision.recipe = "bf16";
  c.run.sequence = kSequence;
  c.run.micro_batch = 1;
  c.run.batch_tokens = ranks * kSequence;
  c.parallel.parts = ranks;
  c.parallel.expert_ranks = ranks;
  c.parallel.expert_rows = ranks;
  return c;
}

std::vector<ParameterSpec> trained(const ModelConfig& model) {
  std::vector<ParameterSpec> specs;
  for (const ParameterSpec& s : parameter_table(model)) {
    if (s.trained()) specs.push_back(s);
  }
  return specs;
}

OpSums listed(const Config& config) {
  const StepOps ops =
      ops_of_step(config, trained(config.model), {.expert_ranks = config.parallel.expert_ranks});
  std::vector<OpCall> all = ops.forward;
  for (const BackwardStage& s : ops.backward) all.insert(all.end(), s.ops.begin(), s.ops.end());
  return sums_by_op(all);
}

// Of one rank's first micro-batch.
OpSums profiled(const Config& config, Group& group) {
  const Recipe recipe = resolve_recipe(config.precision.recipe);
  TrainingMemory memory(config, recipe, {.ranks = group.size(), .rank = group.rank()},
                        {.experts = &group, .experts_on_host = &group});
  memory.allocate(config, recipe);
  Exec on{.threads = 1};
  memory.bind(on);
  Model& model = *memory.model;
  model.initialise(on, 1);
  model.refresh_weights(on);
  std::vector<int32_t> token;
  RandomSequence random({11, stream_id("tokens"), uint32_t(group.rank())});
  for (int64_t i = 0; i <= kSequence; ++i) token.push_back(int32_t(random.below(kVocabulary)));
  model.begin_step(on, {.loss = 1.0f / float(config.run.batch_tokens),
                        .micro_share = 1.0f / float(group.size()),
                        .first_micro = group.rank()});
  Profile profile;
  on.profile = &profile;
  model.forward_backward(on, {.token = {token.data(), {kSequence}},
                              .target = {token.data() + 1, {kSequence}},
                              .batch = 1,
                              .sequence = kSequence});
  OpSums sums;
  for (const Profile::Entry& e : profile.entries()) sums[e.name] = {e.name, e.calls, e.cost};
  return sums;
}

double bytes(const std::vector<OpCall>& calls) {
  double sum = 0;
  for (const OpCall& call : calls) sum += double(call.calls) * call.cost.bytes;
  return sum;
}

}  // namespace

TEST_CASE("what expert ranks add to a micro-batch is what a profile of the program has") {
  for (const int ranks : {2, 3, 4}) {
    const Config config = config_of(ranks);
    const OpSums expected = listed(config);
    std::vector<OpSums> found(static_cast<size_t>(ranks));
    const std::vector<std::string> failed = run_ranks(
        ranks, [&](Group& group) { found[size_t(group.rank())] = profiled(config, group); });
    REQUIRE(failed == std::vector<std::string>(size_t(ranks)));
    for (OpSums& of_rank : found) {
      for (const char* const op : {"zero", "carry_sum", "embedding_forward"}) {
        CAPTURE(ranks, op);
        REQUIRE(expected.contains(op));
        REQUIRE(of_rank[op].calls == expected.at(op).calls);
        REQUIRE(of_rank[op].cost.bytes == expected.at(op).cost.bytes);
        REQUIRE(of_rank[op].cost.flops == expected.at(op).cost.flops);
      }
    }
  }
}

TEST_CASE("the sums over the sources move 4 ep + 2 times a rank's gradients of the experts") {
  for (const int64_t ranks : {2, 3, 4, 6, 12}) {
    CAPTURE(ranks);
    const Config config = config_of(int(ranks));
    const MoeConfig& moe = *config.model.moe;
    const double gradients = 4 * 3 *
                             double(moe.experts / ranks * moe.expert_ffn * config.model.hidden) *
                             double(moe_blocks(config.model));
    const double residual = 2 * double(kSequence * config.model.hidden);
    const OpSums sums = listed(config);
    REQUIRE(sums.at("zero").cost.bytes + sums.at("carry_sum").cost.bytes - residual ==
            double(4 * ranks + 2) * gradients);
  }
}

TEST_CASE("a rank clears the gradients of its own experts") {
  const Config config = config_of(4);
  const std::vector<ParameterSpec> specs = trained(config.model);
  double dense = 0, experts = 0;
  for (const ParameterSpec& s : specs) {
    (s.role == Role::kRoutedExpert ? experts : dense) += 4 * double(s.size());
  }
  REQUIRE(experts > 0);
  REQUIRE(bytes(ops_of_step(config, specs).zeroing) == dense + experts);
  REQUIRE(bytes(ops_of_step(config, specs, {.expert_ranks = 4}).zeroing) == dense + experts / 4);
}

}  // namespace assay::test_step_ops
