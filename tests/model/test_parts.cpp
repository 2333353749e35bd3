// parallel.parts: gradients are the balanced tree of those of the parts, each computed alone; loss
// and router measures are sums over the parts; one part changes no bit.
#include <cmath>
#include <cstring>

#include "engine/part_sums.h"
#include "models/decoder/training_memory.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/tolerance.h"

namespace assay::test_parts {

namespace {

constexpr int64_t kBatch = 12, kSequence = 16;

Config config_of(const std::string& recipe, AuxScope scope = AuxScope::kMicro) {
  Config c = small_config(97);
  c.model.moe = six_experts();
  c.model.moe->expert_ffn = 64;  // whole blocks of nvfp4
  c.model.moe->router.bias_rate = 1e-3;
  c.model.moe->router.aux = RouterAux::kGates;
  c.model.moe->router.aux_alpha = 0.02;
  c.model.moe->router.z_alpha = 1e-3;
  c.model.moe->router.aux_scope = scope;
  c.precision.recipe = recipe;
  c.precision.bf16_last_layers = 0;
  c.run.batch_tokens = kBatch * kSequence;
  c.run.sequence = kSequence;
  c.run.micro_batch = 1;
  return c;
}

Config with_parts(Config c, int64_t parts) {
  c.parallel.parts = parts;
  return c;
}

// A model in its first step, whose batch is cut into parts.
struct Parts {
  TrainingMemory memory;
  Exec on;
  std::vector<int32_t> token, target;

  Parts(const Config& c, int64_t parts, int threads = 2)
      : memory(with_parts(c, parts), resolve_recipe(c.precision.recipe)) {
    memory.allocate(with_parts(c, parts), resolve_recipe(c.precision.recipe));
    on.threads = threads;
    memory.bind(on);
    memory.model->initialise(on, 1);
    memory.model->refresh_weights(on);
    RandomSequence random({11, stream_id("tokens"), 0});
    for (int64_t i = 0; i <= kBatch * kSequence; ++i) {
      token.push_back(int32_t(random.below(uint32_t(c.model.vocab_size))));
    }
    target.assign(token.begin() + 1, token.end());
  }

  TokenBatch sequence(int64_t i) const {
    return {.token = {token.data() + i * kSequence, {kSequence}},
            .target = {target.data() + i * kSequence, {kSequence}},
            .batch = 1,
            .sequence = kSequence};
  }
  void begin(int64_t first_micro = 0) {
    memory.model->begin_step(on, {.loss = 1.0f / float(kBatch * kSequence),
                                  .micro_share = 1.0f / float(kBatch),
                                  .first_micro = first_micro});
  }
  void add(int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) memory.model->forward_backward(on, sequence(i));
  }
  // The whole batch, as Trainer::step computes it.
  void batch() {
    const int64_t parts = memory.sums->parts(), each = kBatch / parts;
    begin();
    for (int64_t part = 0; part < parts; ++part) {
      if (part > 0) memory.model->next_part(on);
      add(part * each, each);
      memory.sums->end_part(on, part);
    }
    memory.model->read_back(on);
    wait(on);
  }
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (const ParameterRef& p : memory.model->parameters()) {
      all.insert(all.end(), p.grad.data, p.grad.data + p.size());
    }
    return all;
  }
};

// Gradients of part `part` of `parts`, computed by a model that sees nothing else.
std::vector<float> of_part(const Config& c, int64_t part, int64_t parts) {
  Parts alone(c, 1);
  const int64_t each = kBatch / parts;
  alone.begin(part * each);  // draws of stochastic rounding count the micro-batches of the run
  alone.add(part * each, each);
  return alone.gradients();
}

std::vector<float> tree(const std::vector<std::vector<float>>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) return leaves[begin];
  size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  std::vector<float> low = tree(leaves, begin, begin + half);
  const std::vector<float> high = tree(leaves, begin + half, end);
  for (size_t i = 0; i < low.size(); ++i) low[i] += high[i];
  return low;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("gradients of parts are added in a balanced tree") {
  for (const char* recipe : {"fp32", "bf16", "nvfp4"}) {
    for (const int64_t parts : {2, 3, 4, 6, 12}) {
      CAPTURE(recipe, parts);
      const Config c = config_of(recipe);
      std::vector<std::vector<float>> leaves;
      for (int64_t part = 0; part < parts; ++part) leaves.push_back(of_part(c, part, parts));
      Parts whole(c, parts);
      whole.batch();
      REQUIRE(equal_bits(whole.gradients(), tree(leaves, 0, leaves.size())));
      whole.batch();  // the levels of the batch before do not show
      REQUIRE(equal_bits(whole.gradients(), tree(leaves, 0, leaves.size())));
    }
  }
}

TEST_CASE("the sums of a batch do not depend on its parts, but for rounding") {
  Parts one(config_of("fp32"), 1), four(config_of("fp32"), 4);
  one.batch();
  four.batch();
  const std::vector<float> a = one.gradients(), b = four.gradients();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, double(std::abs(a[i])));
    difference = std::max(difference, double(std::abs(a[i] - b[i])));
  }
  REQUIRE(difference < tol::two_backends<float>(largest));
  REQUIRE(difference > 0);  // else this test compares nothing
  const auto same_sum = [](double x, double y) {
    return std::abs(x - y) <= tol::sum_in_double(kBatch, x);
  };
  REQUIRE(same_sum(one.memory.model->loss_sum(), four.memory.model->loss_sum()));
  const auto &layers = one.memory.model->router_layers(),
             &same = four.memory.model->router_layers();
  REQUIRE(layers.size() == 1);
  for (int64_t e = 0; e < layers[0].counts.dim[0]; ++e) {
    REQUIRE(layers[0].counts[e] == same[0].counts[e]);
  }
  REQUIRE(same_sum(layers[0].aux, same[0].aux));
  REQUIRE(same_sum(layers[0].z, same[0].z));
  REQUIRE(same_sum(layers[0].gate_entropy_nats, same[0].gate_entropy_nats));
}

TEST_CASE("aux_scope step counts the part so far, the selection bias the whole step") {
  const Config c = config_of("fp32", AuxScope::kStep);
  std::vector<std::vector<float>> leaves;
  for (int64_t part = 0; part < 3; ++part) leaves.push_back(of_part(c, part, 3));
  Parts three(c, 3), one(c, 1);
  three.batch();
  one.batch();
  REQUIRE(equal_bits(three.gradients(), tree(leaves, 0, 3)));
  for (Parts* p : {&three, &one}) {
    p->memory.model->update_router_bias(p->on, 1.0f);
    p->memory.model->read_back(p->on);
    wait(p->on);
  }
  const RouterLayerState a = three.memory.model->router_layers()[0],
                         b = one.memory.model->router_layers()[0];
  int64_t assigned = 0;
  for (int64_t e = 0; e < a.counts.dim[0]; ++e) {
    REQUIRE(a.counts[e] == b.counts[e]);
    REQUIRE(a.bias[e] == b.bias[e]);
    assigned += a.counts[e];
  }
  REQUIRE(assigned == kBatch * kSequence * 2);
}

TEST_CASE("bias_rate auto moves the bias by the lead over the steps") {
  Config c = config_of("fp32");
  c.model.moe->router.bias_rate = BiasRate::measured();
  c.model.moe->router.bias_steps = 40;
  c.model.moe->router.bias_follows_lr = true;
  for (const double follow : {1.0, 0.25}) {
    Parts p(c, 3);
    p.batch();
    p.memory.model->update_router_bias(p.on, float(follow));
    p.memory.model->read_back(p.on);
    wait(p.on);
    const RouterLayerState s = p.memory.model->router_layers()[0];
    REQUIRE(s.lead > 1e-3);
    const double rate = follow * s.lead / (2 * 40), experts = double(s.counts.dim[0]);
    int64_t total = 0;
    for (int64_t e = 0; e < s.counts.dim[0]; ++e) total += s.counts[e];
    std::vector<double> sign;
    double mean = 0;
    for (int64_t e = 0; e < s.counts.dim[0]; ++e) {
      const int64_t excess = s.counts[e] * s.counts.dim[0] - total;
      sign.push_back(excess > 0 ? 1 : excess < 0 ? -1 : 0);
      mean += sign.back() / experts;
    }
    for (int64_t e = 0; e < s.counts.dim[0]; ++e) {
      CAPTURE(follow, e);
      // The rate is a float, and the lead is in units of 2^-32.
      REQUIRE(std::abs(s.bias[e] + rate * (sign[size_t(e)] - mean)) < 4e-7 * rate + 0x1p-32);
    }
  }
}

TEST_CASE("parts have the same bits for any threads") {
  Parts one(config_of("bf16"), 6, 1), three(config_of("bf16"), 6, 3);
  one.batch();
  three.batch();
  REQUIRE(equal_bits(one.gradients(), three.gradients()));
  REQUIRE(one.memory.model->loss_sum() == three.memory.model->loss_sum());
}

TEST_CASE("a level of the tree is as large as the gradients, one part takes none") {
  const auto planned = [](int64_t parts) {
    const TrainingMemory memory(with_parts(config_of("bf16"), parts), Recipe::kBf16);
    return memory.plan.section_bytes(Section::kSums);
  };
  const TrainingMemory memory(config_of("bf16"), Recipe::kBf16);
  const size_t level = memory.plan.section_bytes(Section::kGradients);
  REQUIRE(planned(1) == 0);
  REQUIRE(planned(2) == level);
  REQUIRE(planned(3) == 2 * level);
  REQUIRE(planned(4) == 2 * level);
  REQUIRE(planned(12) == 4 * level);
}

}  // namespace assay::test_parts
