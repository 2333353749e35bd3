// Ranks as threads of this process, which share every batch: after each step gradients, norm,
// ratios, masters, moments and counts have the bits of one rank that computes all parts.
#include <cstring>
#include <limits>
#include <map>

#include "engine/part_sums.h"
#include "engine/rank_sums.h"
#include "engine/trainer.h"
#include "models/decoder/training_memory.h"
#include "tests/catch.h"
#include "tests/comm/thread_group.h"
#include "tests/model/model_fixture.h"

namespace assay::test_rank_sums {

namespace {

constexpr int64_t kBatch = 12, kSequence = 16, kSteps = 3;

// Experts whose matrices are whole pieces, so that Muon's are cut between experts, and tensors that
// end inside of a piece.
Config config_of(const std::string& recipe, OptimizerKind kind, StateFormat state) {
  Config c = small_config(300);
  c.model.hidden = 128;
  c.model.moe = six_experts();
  c.model.moe->expert_ffn = 128;
  c.model.moe->router.bias_rate = BiasRate::measured();
  c.model.moe->router.aux = RouterAux::kGates;
  c.model.moe->router.aux_alpha = 0.02;
  c.precision.recipe = recipe;
  c.optimizer.kind = kind;
  c.optimizer.state = state;
  c.optimizer.expert_lr = 2e-3;
  c.optimizer.weight_decay = 0.1;
  c.optimizer.clip = 0.5;  // always clips
  c.run.batch_tokens = kBatch * kSequence;
  c.run.sequence = kSequence;
  c.run.micro_batch = 1;
  return c;
}

using Bytes = std::vector<char>;

template <typename T>
Bytes bytes_of(const T* data, int64_t count) {
  Bytes bytes(size_t(count) * sizeof(T));
  if (count > 0) std::memcpy(bytes.data(), data, bytes.size());
  return bytes;
}

// What a rank holds after its steps. Pieces: by tensor and first element.
struct Held {
  struct Step {
    double loss = 0, norm = 0, clip = 0;
    int64_t non_finite = 0;
    uint64_t checksum = 0;
    GroupRatios ratios;
    std::vector<int64_t> counts;
    std::vector<float> bias;
    std::vector<double> means, means_again;  // of the routers; after another read_back()
  };
  std::vector<Step> steps;
  std::map<std::string, Bytes> whole;  // masters, buffers, working copies
  std::map<std::string, std::map<int64_t, Bytes>> gradients, moments;  // what it owns
  size_t buckets = 0;
};

class Rank {
 public:
  // group: null for one rank with all parts.
  Rank(const Config& config, int64_t bucket, Group* group)
      : layout_{.ranks = group ? group->size() : 1,
                .rank = group ? group->rank() : 0,
                .parts = config.parallel.parts},
        group_(group),
        sums_(layout_.local_parts()) {
    const Recipe recipe = resolve_recipe(config.precision.recipe);
    model_ = make_decoder(config.model, recipe,
                          decoder_options(config, {.ranks = layout_.ranks, .rank = layout_.rank}));
    if (group) {
      std::vector<const ParameterSpec*> specs;
      for (const ParameterRef& p : model_->parameters()) specs.push_back(p.spec);
      shards_ = std::make_unique<Shards>(specs, config.optimizer.kind, layout_.ranks, bucket);
      rank_sums_ = std::make_unique<RankSums>(*shards_, layout_.rank, group);
    }
    optimizer_ = std::make_unique<Optimizer>(config.optimizer, *model_, 1,
                                             shards_ ? &shards_->of(layout_.rank) : nullptr);
    model_->plan(plan_);
    sums_.plan(plan_);
    if (group) rank_sums_->plan(plan_, model_->parameters());
    optimizer_->plan(plan_);
    plan_.add(Section::kScratch, "workspace", on_.workspace, {model_->workspace_bytes()});
    plan_.allocate();
    on_.threads = 1;
    model_->bind(on_);
    sums_.bind(plan_);
    if (group) rank_sums_->bind(model_->parameters());
    optimizer_->bind();
    model_->initialise(on_, 1);
    model_->refresh_weights(on_);
    RandomSequence random({11, stream_id("tokens"), 0});
    for (int64_t i = 0; i <= kBatch * kSequence; ++i) {
      token_.push_back(int32_t(random.below(uint32_t(config.model.vocab_size))));
    }
  }

  // infinite: plants an infinity into the gradients of the last part of this step.
  Held train(int64_t infinite = -1) {
    Held held;
    for (int64_t step = 0; step < kSteps; ++step) held.steps.push_back(one_step(step, infinite));
    held.buckets = shards_ ? shards_->buckets().size() : 0;
    for (const TensorRef& t : model_->tensors()) {
      held.whole[t.name] = bytes_of(static_cast<const char*>(t.data), t.bytes());
    }
    const std::vector<ParameterRef> parameters = model_->parameters();
    for (const ParameterRef& p : parameters) {
      held.whole[p.spec->name + ", working copy"] = bytes_of(p.weight.data, p.weight.size());
    }
    for (const Segment& s : owned(parameters)) {
      const ParameterRef& p = parameters[s.parameter];
      held.gradients[p.spec->name][s.first * 4] = bytes_of(p.grad.data + s.first, s.count);
    }
    for (const Slice& s : optimizer_->slices()) {
      if (s.count == 0) continue;
      const int64_t at = s.first * dtype_bytes(s.whole.dtype);
      held.moments[s.whole.name][at] = bytes_of(static_cast<const char*>(s.data), s.bytes());
    }
    return held;
  }

 private:
  std::vector<Segment> owned(const std::vector<ParameterRef>& parameters) const {
    if (shards_) return shards_->of(layout_.rank);
    std::vector<Segment> all;
    for (size_t p = 0; p < parameters.size(); ++p) all.push_back({p, 0, parameters[p].size()});
    return all;
  }

  void forward_backward(int64_t step, int64_t infinite) {
    const int64_t each = kBatch / layout_.parts, local = layout_.local_parts();
    model_->begin_step(on_, {.loss = 1.0f / float(kBatch * kSequence),
                             .micro_share = 1.0f / float(kBatch),
                             .first_micro = step * kBatch + layout_.first_part() * each});
    for (int64_t part = 0; part < local; ++part) {
      if (part > 0) model_->next_part(on_);
      for (int64_t i = 0; i < each; ++i) {
        const int64_t at = ((layout_.first_part() + part) * each + i) * kSequence;
        model_->forward_backward(on_, {.token = {token_.data() + at, {kSequence}},
                                       .target = {token_.data() + at + 1, {kSequence}},
                                       .batch = 1,
                                       .sequence = kSequence});
      }
      const bool last = layout_.first_part() + part == layout_.parts - 1;
      if (last && step == infinite) {
        model_->parameters().front().grad[3] = std::numeric_limits<float>::infinity();
        model_->parameters().back().grad[5] = std::numeric_limits<float>::quiet_NaN();
      }
      sums_.end_part(on_, part);
    }
  }

  std::vector<double> router_means() {
    std::vector<double> means;
    for (const RouterLayerState& l : model_->router_layers()) {
      means.insert(means.end(), {l.aux, l.z, l.gate_entropy_nats});
    }
    return means;
  }

  Held::Step one_step(int64_t step, int64_t infinite) {
    forward_backward(step, infinite);
    std::optional<TrainingRanks> ranks;
    if (group_)
      ranks.emplace(TrainingRanks{
          .layout = layout_, .group = *group_, .model = *group_, .sums = *rank_sums_});
    step_parameters(on_, *model_, *optimizer_, ranks ? &*ranks : nullptr, step, 1.0,
                    Optimizer::Sample::kRatios);
    model_->read_back(on_);
    optimizer_->read_back(on_);
    wait(on_);
    if (group_) model_->gather_results(*group_);
    Held::Step held{.loss = model_->loss_sum(),
                    .norm = optimizer_->gradient_norm(),
                    .clip = optimizer_->clip_factor(),
                    .non_finite = optimizer_->non_finite(),
                    .checksum = optimizer_->parameter_checksum(on_),
                    .ratios = optimizer_->ratios(),
                    .counts = {},
                    .bias = {},
                    .means = {},
                    .means_again = {}};
    for (const RouterLayerState& l : model_->router_layers()) {
      held.counts.insert(held.counts.end(), l.counts.data, l.counts.data + l.counts.size());
      held.bias.insert(held.bias.end(), l.bias.data, l.bias.data + l.bias.size());
    }
    held.means = router_means();
    model_->read_back(on_);  // as after an evaluation between two steps
    wait(on_);
    for (int times = 0; group_ && times < 2; ++times) model_->gather_results(*group_);
    held.means_again = router_means();
    return held;
  }

  Layout layout_;
  Group* group_;
  std::unique_ptr<Model> model_;
  PartSums sums_;
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<RankSums> rank_sums_;
  std::unique_ptr<Optimizer> optimizer_;
  MemoryPlan plan_;
  Exec on_;
  std::vector<int32_t> token_;
};

std::vector<Held> trained(const Config& config, int ranks, int64_t bucket, int64_t infinite = -1) {
  std::vector<Held> held(static_cast<size_t>(ranks));
  const std::vector<std::string> failed = run_ranks(ranks, [&](Group& group) {
    held[size_t(group.rank())] = Rank(config, bucket, &group).train(infinite);
  });
  for (const std::string& why : failed) REQUIRE(why.empty());
  return held;
}

void require_same_steps(const Held& one, const Held& other) {
  for (size_t s = 0; s < one.steps.size(); ++s) {
    CAPTURE(s);
    const Held::Step &a = one.steps[s], &b = other.steps[s];
    REQUIRE(a.loss == b.loss);
    REQUIRE(a.norm == b.norm);
    REQUIRE(a.clip == b.clip);
    REQUIRE(a.checksum == b.checksum);
    REQUIRE(std::memcmp(&a.ratios, &b.ratios, sizeof a.ratios) == 0);  // NaN where a role is absent
    REQUIRE(a.counts == b.counts);
    REQUIRE(a.bias == b.bias);
    REQUIRE(a.means == b.means);
    REQUIRE(b.means_again == b.means);
  }
}

// The pieces of all ranks are those of the whole, and cover it.
void require_same_pieces(
    const std::map<std::string, std::map<int64_t, Bytes>>& whole,
    const std::vector<const std::map<std::string, std::map<int64_t, Bytes>>*>& of_ranks) {
  for (const auto& [name, pieces] : whole) {
    CAPTURE(name);
    REQUIRE(pieces.size() == 1);
    const Bytes& all = pieces.at(0);
    size_t covered = 0;
    for (const auto* rank : of_ranks) {
      const auto found = rank->find(name);
      if (found == rank->end()) continue;
      for (const auto& [at, bytes] : found->second) {
        REQUIRE(size_t(at) + bytes.size() <= all.size());
        REQUIRE(std::memcmp(all.data() + at, bytes.data(), bytes.size()) == 0);
        covered += bytes.size();
      }
    }
    REQUIRE(covered == all.size());
  }
}

void require_same(const Held& one, const std::vector<Held>& ranks) {
  std::vector<const std::map<std::string, std::map<int64_t, Bytes>>*> gradients, moments;
  for (const Held& rank : ranks) {
    require_same_steps(one, rank);
    REQUIRE(rank.whole == one.whole);
    gradients.push_back(&rank.gradients);
    moments.push_back(&rank.moments);
  }
  require_same_pieces(one.gradients, gradients);
  require_same_pieces(one.moments, moments);
}

size_t cut_tensors(const std::vector<Held>& ranks, const std::string& ending) {
  std::map<std::string, int> owners;
  for (const Held& rank : ranks) {
    for (const auto& [name, pieces] : rank.moments) owners[name] += 1;
  }
  size_t cut = 0;
  for (const auto& [name, n] : owners) cut += n > 1 && name.ends_with(ending);
  return cut;
}

}  // namespace

TEST_CASE("steps of several ranks have the bits of one rank with as many parts") {
  struct Case {
    const char* recipe;
    OptimizerKind kind;
    StateFormat state;
    const char* moment;
  };
  for (const Case& c : {Case{"fp32", OptimizerKind::kAdamW, StateFormat::kFp32, ".v"},
                        Case{"bf16", OptimizerKind::kAdamW, StateFormat::kBf16, ".v"},
                        Case{"bf16", OptimizerKind::kMuon, StateFormat::kFp32, ".momentum"}}) {
    for (const int64_t parts : {3, 4}) {
      Config config = config_of(c.recipe, c.kind, c.state);
      config.parallel.parts = parts;
      const Held one = Rank(config, 0, nullptr).train();
      REQUIRE(one.steps[0].clip < 1);
      REQUIRE(one.steps[0].checksum != one.steps[1].checksum);
      for (const int ranks : {2, 3, 4}) {
        if (!Layout::fits(parts, ranks)) continue;
        for (const int64_t bucket : {int64_t{0}, int64_t{20000}, int64_t{100000}}) {
          CAPTURE(c.recipe, c.moment, parts, ranks, bucket);
          const std::vector<Held> held = trained(config, ranks, bucket);
          REQUIRE((held[0].buckets > 1) == (bucket > 0));
          REQUIRE(cut_tensors(held, c.moment) > 0);
          require_same(one, held);
        }
      }
    }
  }
}

TEST_CASE("every rank counts the gradients of all that are not finite") {
  Config config = config_of("fp32", OptimizerKind::kAdamW, StateFormat::kFp32);
  config.parallel.parts = 4;
  const Held one = Rank(config, 0, nullptr).train(kSteps - 1);
  REQUIRE(one.steps[kSteps - 2].non_finite == 0);
  REQUIRE(one.steps[kSteps - 1].non_finite == 2);
  for (const int ranks : {2, 4}) {
    for (const Held& rank : trained(config, ranks, 20000, kSteps - 1)) {
      REQUIRE(rank.steps[kSteps - 2].non_finite == 0);
      REQUIRE(rank.steps[kSteps - 1].non_finite == 2);
    }
  }
}

TEST_CASE("a rank plans its share of the moments, and no more gradients than one rank") {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    Config config = config_of("fp32", kind, StateFormat::kFp32);
    config.parallel.parts = 4;
    const TrainingMemory one(config, Recipe::kFp32);
    size_t moments = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const TrainingMemory four(config, Recipe::kFp32, {.ranks = 4, .rank = rank});
      const size_t own = four.plan.section_bytes(Section::kOptimizer);
      REQUIRE(double(own) < 0.35 * double(one.plan.section_bytes(Section::kOptimizer)));
      moments += own;
      REQUIRE(four.plan.section_bytes(Section::kGradients) ==
              one.plan.section_bytes(Section::kGradients));
    }
    const double all = double(one.plan.section_bytes(Section::kOptimizer));
    REQUIRE(double(moments) >= all);
    REQUIRE(double(moments) < 1.01 * all);  // slices are aligned
  }
}

}  // namespace assay::test_rank_sums
