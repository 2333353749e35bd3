#include "lab/cluster/predict.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "base/check.h"
#include "comm/layout.h"
#include "engine/config/check.h"
#include "lab/cluster/step_calls.h"
#include "models/linear/precision.h"
#include "models/parameters/table.h"

namespace assay {

namespace {

constexpr double kFloat = sizeof(float);

double device_bytes(const MemoryPlan& plan) {
  return double(plan.total_bytes() - plan.section_bytes(Section::kHostVisible) -
                plan.section_bytes(Section::kData));
}

int64_t product_of(const std::vector<ParameterSpec>& specs, bool (*wanted)(const ParameterSpec&)) {
  int64_t sum = 0;
  for (const ParameterSpec& s : specs) sum += wanted(s) ? s.size() : 0;
  return sum;
}
bool is_expert(const ParameterSpec& s) {
  return s.role == Role::kRoutedExpert;
}

std::vector<ParameterSpec> trained_specs(const ModelConfig& model) {
  std::vector<ParameterSpec> specs;
  for (const ParameterSpec& s : parameter_table(model)) {
    if (s.trained()) specs.push_back(s);
  }
  return specs;
}

// The parts of the configuration on so many ranks; one of each rank where it names none.
int64_t parts_on(const Config& config, int64_t ranks) {
  const int64_t parts = config.parallel.parts;
  if (parts == 0 || (parts == 1 && ranks > 1)) return ranks;
  if (Layout::fits(parts, ranks)) return parts;
  throw UserError(
      strprintf("parallel.parts = %ld does not lie on %ld GPUs: each has a power of two "
                "of them",
                long(parts), long(ranks)),
      "--set parallel.parts=0 takes one part a GPU");
}

// One step on one mapping, in the making.
class Step {
 public:
  Step(const Config& config, const Mapping& mapping, const Cluster& cluster, const OpTimes& times)
      : config_(config), mapping_(mapping), cluster_(cluster), times_(times) {
    config_.run.micro_batch = mapping.micro_batch;
    config_.parallel.parts = parts_on(config, mapping.ranks());
    config_.parallel.expert_ranks = mapping.expert_ranks;
    config_.precision.recipe = "bf16";
    specs_ = trained_specs(config_.model);
    ops_ = ops_of_step(config_, specs_, {.expert_ranks = mapping.expert_ranks});
    forward_s_ = seconds(ops_.forward) + expert_rows_forward_s();
    for (const BackwardStage& stage : ops_.backward) backward_s_.push_back(seconds(stage.ops));
    add_experts_to_backward();
    const int64_t parts = config_.parallel.parts / mapping.ranks();  // of a rank
    zeroing_s_ = double(parts) * seconds(ops_.zeroing);
    part_sums_s_ = seconds(ops_of_part_sums(parts, gradients_of_rank()));
  }

  Prediction predicted() {
    Prediction p{};
    p.mapping = mapping_;
    p.micro_batch_s = forward_s_ + whole_backward_s();
    plan(p);
    make_calls();
    p.update_s = zeroing_s_ + part_sums_s_ + seconds(update_);
    p.sent_bytes = sent_bytes_;
    if (mapping_.expert_ranks == 1) p.now = now();
    p.overlapped = overlapped(0);
    p.hidden = overlapped(forward_s_);
    p.assumed = assumed_;
    return p;
  }

 private:
  double seconds(const std::vector<OpCall>& calls) {
    for (const OpCall& call : calls) {
      if (!times_.has_share(call.op)) assumed_.insert(call.op);
    }
    return times_.seconds(calls, cluster_);
  }
  double seconds(const char* op, double bytes) {
    return seconds({OpCall{op, 1, {.bytes = bytes, .flops = 0}}});
  }
  double whole_backward_s() const {
    double sum = 0;
    for (const double s : backward_s_) sum += s;
    return sum;
  }
  double ranks() const { return mapping_.ranks(); }
  int64_t gradients_of_rank() const {
    int64_t values = 0;
    for (const ParameterSpec& s : specs_) {
      values += is_expert(s) ? s.size() / mapping_.expert_ranks : s.size();
    }
    return values;
  }

  // Expert ranks are neighbours: in one node as far as it reaches.
  GroupShape expert_group() const {
    const int ep = int(mapping_.expert_ranks), per_node = mapping_.shape.per_node;
    return ep <= per_node ? GroupShape{1, ep} : GroupShape{ep / per_node, per_node};
  }
  GroupShape replica_group() const {
    const GroupShape experts = expert_group();
    return {mapping_.shape.nodes / experts.nodes, mapping_.shape.per_node / experts.per_node};
  }

  // Rows of x to the experts' ranks and rows of y back, in every MoE block, with even loads; and
  // the counts in forward, for which the host waits.
  double expert_rows_bytes() const {
    const double ep = double(mapping_.expert_ranks);
    const double tokens = double(mapping_.micro_batch * config_.run.sequence);
    return tokens * double(config_.model.moe->top_k * config_.model.hidden) * sizeof(bf16) *
           (ep - 1) / ep;
  }
  double expert_rows_forward_s() const {
    if (mapping_.expert_ranks == 1) return 0;
    const double counts =
        double(config_.model.moe->experts) * 4 * double(mapping_.expert_ranks - 1);
    return double(moe_blocks(config_.model)) *
           (rows_there_and_back_s() +
            exchange_seconds(cluster_, expert_group(), counts, Route::kFlat));
  }
  double expert_rows_backward_s() const {
    return double(moe_blocks(config_.model)) * rows_there_and_back_s();
  }
  // Of one MoE block.
  double rows_there_and_back_s() const {
    return 2 * exchange_seconds(cluster_, expert_group(), expert_rows_bytes(), Route::kFlat);
  }
  // The two exchanges back.
  void add_experts_to_backward() {
    if (mapping_.expert_ranks == 1) return;
    for (size_t i = 0; i < ops_.backward.size(); ++i) {
      const std::vector<OpCall>& ops = ops_.backward[i].ops;
      const bool moe = std::any_of(ops.begin(), ops.end(), [](const OpCall& call) {
        return call.op == "grouped_linear_wgrad";
      });
      if (moe) backward_s_[i] += rows_there_and_back_s();
    }
  }

  // Memory, the optimizer's ops and, without expert ranks, the calls of the step.
  void plan(Prediction& p) {
    const int ranks = mapping_.ranks();
    const Recipe recipe = resolve_recipe("bf16", Backend::kGpu);
    int64_t most = -1;
    for (int rank = 0; rank < ranks; ++rank) {
      TrainingMemory memory(config_, recipe,
                            {.backend = Backend::kGpu, .ranks = ranks, .rank = rank});
      p.memory_bytes = std::max(p.memory_bytes, device_bytes(memory.plan));
      if (rank == 0 && ranks > 1 && mapping_.expert_ranks == 1) {
        calls_ = calls_of_step(config_, memory, StepKind::kPlain);
        buckets_ = memory.shards->buckets();
      }
      if (mapping_.expert_ranks == 1) {
        take_update(memory.shards ? memory.shards->of(rank) : std::vector<Segment>{}, most);
      }
    }
    if (mapping_.expert_ranks > 1) {
      update_ = ops_of_update(shares(), {});
      cast_bytes_ =
          6 * (double(product_of(
                   specs_, [](const ParameterSpec& s) { return s.is_matrix() && !is_expert(s); })) +
               double(product_of(specs_, is_expert)) / double(mapping_.expert_ranks));
    } else if (ranks > 1) {
      cast_bytes_ =
          6 * double(product_of(specs_, [](const ParameterSpec& s) { return s.is_matrix(); }));
    }
    p.fits = p.memory_bytes + kReservedBytes <= cluster_.memory_bytes;
  }

  // The optimizer's ops of the rank that owns most. No segments: everything.
  void take_update(const std::vector<Segment>& segments, int64_t& most) {
    std::vector<int64_t> matrices, vectors;
    int64_t elements = 0;
    const auto add = [&](const ParameterSpec& spec, int64_t count) {
      (spec.is_matrix() ? matrices : vectors).push_back(count);
      elements += count;
    };
    if (segments.empty() && mapping_.ranks() == 1) {
      for (const ParameterSpec& spec : specs_) add(spec, spec.size());
    }
    for (const Segment& s : segments) add(specs_[s.parameter], s.count);
    if (elements <= most) return;
    most = elements;
    update_ = ops_of_update(matrices, vectors);
  }
  // With expert ranks: what a rank owns of each parameter.
  std::vector<int64_t> shares() const {
    std::vector<int64_t> counts;
    for (const ParameterSpec& s : specs_) counts.push_back(s.size() / mapping_.ranks());
    return counts;
  }

  struct Ready {
    std::string cause;
    double flat_s = 0, levels_s = 0, sum_s = 0;  // sum_s: of what came, on this GPU
    size_t after = 0;                            // backward stages
  };

  // After which backward stage all parameters from this one on are done.
  size_t stages_until(size_t parameter) const {
    for (size_t i = 0; i < ops_.backward.size(); ++i) {
      if (ops_.backward[i].first_parameter <= parameter) return i + 1;
    }
    return ops_.backward.size();
  }

  // bytes: of the rank that sends or receives most.
  void exchange(std::vector<Ready>& to, const char* cause, const GroupShape& group, double bytes,
                size_t after) {
    if (group.size() == 1) return;
    const double size = group.size();
    to.push_back({.cause = cause,
                  .flat_s = exchange_seconds(cluster_, group, bytes, Route::kFlat),
                  .levels_s = exchange_seconds(cluster_, group, bytes, Route::kTwoLevels),
                  .sum_s = seconds("tree_sum", bytes / (size - 1) * (size + 1)),
                  .after = after});
  }

  void make_calls() {
    if (mapping_.ranks() == 1) return;
    if (mapping_.expert_ranks > 1) return make_calls_of_expert_ranks();
    const std::vector<int64_t> sent = bytes_sent(calls_);
    sent_bytes_ = double(*std::max_element(sent.begin(), sent.end()));
    size_t bucket = 0;
    for (const GroupCall& call : calls_) {
      const double bytes = double(call.most());
      switch (call.cause) {
        case GroupCall::Cause::kGradients: {
          size_t first = specs_.size();
          for (const auto& owned : buckets_[bucket]) {
            for (const Segment& s : owned) first = std::min(first, s.parameter);
          }
          exchange(gradients_, "gradients", mapping_.shape, bytes, stages_until(first));
          ++bucket;
          break;
        }
        case GroupCall::Cause::kParameters:
          exchange(parameters_, "parameters", mapping_.shape, bytes, 0);
          break;
        default:
          small_s_ += sum_seconds(cluster_, mapping_.shape, bytes);
      }
    }
  }

  // What each backward stage ends: dense parameters go to all ranks, experts to their replicas.
  void make_calls_of_expert_ranks() {
    const double all = ranks(), copies = replica_group().size();
    size_t above = specs_.size();
    for (size_t stage = 0; stage < ops_.backward.size(); ++stage) {
      double dense = 0, experts = 0;
      for (size_t p = ops_.backward[stage].first_parameter; p < above; ++p) {
        (is_expert(specs_[p]) ? experts : dense) += double(specs_[p].size()) * kFloat;
      }
      above = std::min(above, ops_.backward[stage].first_parameter);
      experts /= double(mapping_.expert_ranks);
      for (auto* to : {&gradients_, &parameters_}) {
        const char* const cause = to == &gradients_ ? "gradients" : "parameters";
        const double dense_sent = dense * (all - 1) / all;
        const double experts_sent = experts * (copies - 1) / copies;
        sent_bytes_ += dense_sent + experts_sent;
        if (dense > 0) exchange(*to, cause, mapping_.shape, dense_sent, stage + 1);
        if (experts > 0) exchange(*to, cause, replica_group(), experts_sent, stage + 1);
      }
    }
    sent_bytes_ += 4 * double(moe_blocks(config_.model)) * expert_rows_bytes() *
                   double(mapping_.micro_batches);
    // Targets, the norm, counts and measures of the routers, results.
    const auto small_calls = double(3 + 3 * moe_blocks(config_.model));
    small_s_ = small_calls * sum_seconds(cluster_, mapping_.shape, 4096);
  }

  double all_micro_batches_s() const {
    return zeroing_s_ + part_sums_s_ +
           double(mapping_.micro_batches) * (forward_s_ + whole_backward_s());
  }
  double refresh_s() { return cast_bytes_ > 0 ? seconds("cast", cast_bytes_) : 0; }

  // Adds what comes after the gradients are there.
  void finish(StepTime& time, double parameters_s) {
    time.exposed_s["parameters"] += parameters_s;
    time.exposed_s["other calls"] += small_s_;
    time.step_s += seconds(update_);
    for (const auto& [cause, s] : time.exposed_s) time.step_s += s;
    std::erase_if(time.exposed_s, [](const auto& e) { return e.second == 0; });
  }
  StepTime now() {
    StepTime time{.step_s = all_micro_batches_s(), .exposed_s = {}};
    double parameters_s = refresh_s();
    for (const Ready& r : gradients_) time.exposed_s[r.cause] += r.flat_s + r.sum_s;
    for (const Ready& r : parameters_) parameters_s += r.flat_s;
    finish(time, parameters_s);
    return time;
  }
  // hide_s: of the next forward, behind which parameters may come.
  StepTime overlapped(double hide_s) {
    std::vector<double> stages{all_micro_batches_s() - whole_backward_s()};
    stages.insert(stages.end(), backward_s_.begin(), backward_s_.end());
    std::vector<LaneCall> lane;
    for (const Ready& r : gradients_) {
      lane.push_back({.cause = r.cause, .seconds = r.levels_s + r.sum_s, .after = r.after + 1});
    }
    const TwoStreams schedule = two_streams(stages, lane);
    StepTime time{.step_s = schedule.main_s, .exposed_s = schedule.exposed_s};
    double parameters_s = refresh_s();
    for (const Ready& r : parameters_) parameters_s += r.levels_s;
    finish(time, std::max(0.0, parameters_s - hide_s));
    if (mapping_.expert_ranks > 1) {  // inside the stages
      time.exposed_s["expert rows"] =
          double(mapping_.micro_batches) * (expert_rows_forward_s() + expert_rows_backward_s());
    }
    return time;
  }

  Config config_;
  const Mapping mapping_;
  const Cluster& cluster_;
  const OpTimes& times_;
  std::vector<ParameterSpec> specs_;
  StepOps ops_;
  double forward_s_ = 0, zeroing_s_ = 0, part_sums_s_ = 0;
  double small_s_ = 0, sent_bytes_ = 0, cast_bytes_ = 0;
  std::vector<double> backward_s_;
  std::vector<OpCall> update_;
  std::vector<GroupCall> calls_;
  std::vector<Shards::Bucket> buckets_;
  std::vector<Ready> gradients_, parameters_;
  std::set<std::string> assumed_;
};

// Each rank is planned, with a list of every kShardPiece elements of every tensor: 1e12 parameters
// on 8 GPUs take half a minute on one core.
constexpr double kMostParameters = 0x1p40, kMostPlanned = 0x1p44;

void require_size(const Config& config, const Mapping& mapping) {
  double parameters = 0;
  for (const ParameterSpec& s : trained_specs(config.model)) parameters += double(s.size());
  if (parameters > kMostParameters) {
    throw UserError(
        strprintf("%.3g parameters: at most %.3g can be simulated", parameters, kMostParameters),
        "choose a smaller model");
  }
  if (parameters * mapping.ranks() > kMostPlanned) {
    throw UserError(strprintf("%.3g parameters on %d GPUs: at most %.3g times the GPUs can be "
                              "simulated, as each GPU is planned",
                              parameters, mapping.ranks(), kMostPlanned),
                    "choose fewer --nodes or a smaller model");
  }
}

}  // namespace

Mapping mapping_of(const Config& config, const GroupShape& shape, int64_t expert_ranks) {
  const int64_t ranks = shape.size(), sequences = config.run.batch_tokens / config.run.sequence;
  if (sequences % ranks != 0) {
    throw UserError(strprintf("%ld GPUs do not divide the %ld sequences of a step", long(ranks),
                              long(sequences)),
                    "choose other --nodes or another run.batch_tokens");
  }
  if (expert_ranks > 1) {
    const int64_t experts = config.model.moe ? config.model.moe->experts : 0;
    const int64_t per_node = shape.per_node;
    const bool in_nodes =
        expert_ranks <= per_node ? per_node % expert_ranks == 0 : expert_ranks % per_node == 0;
    if (experts % expert_ranks != 0 || experts == 0 || ranks % expert_ranks != 0 || !in_nodes) {
      throw UserError(strprintf("%ld expert ranks on %ld GPUs, %ld a node, with %ld experts",
                                long(expert_ranks), long(ranks), long(per_node), long(experts)),
                      "--expert-ranks, or parallel.expert_ranks of the configuration, must divide "
                      "the experts and the GPUs, in whole nodes");
    }
  }
  const int64_t of_rank = sequences / ranks;
  const int64_t parts = parts_on(config, ranks);
  if (sequences % parts != 0) {
    throw UserError(strprintf("parallel.parts = %ld does not divide the %ld sequences of a step",
                              long(parts), long(sequences)),
                    "choose other parts or another run.batch_tokens");
  }
  const int64_t of_part = sequences / parts;
  int64_t micro_batch = std::min(config.run.micro_batch, of_part);
  while (of_part % micro_batch != 0) --micro_batch;
  return {.shape = shape,
          .expert_ranks = expert_ranks,
          .micro_batch = micro_batch,
          .micro_batches = of_rank / micro_batch};
}

Prediction predict(const Config& config, const Mapping& mapping, const Cluster& cluster,
                   const OpTimes& times) {
  const std::string& recipe = config.precision.recipe;
  if (recipe != "auto" && recipe != "bf16") {
    throw UserError("precision.recipe " + recipe + ": the times of its ops were not measured",
                    "--set precision.recipe=bf16");
  }
  if (precision_table(config.precision, config.model).any()) {
    throw UserError("precision.override quantises products: the times of its ops were not measured",
                    "--set precision.override=[]");
  }
  require_size(config, mapping);
  return Step(config, mapping, cluster, times).predicted();
}

}  // namespace assay
