// One optimizer step. What a run does between steps (evaluate, save, log) is in engine/run/run.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "comm/group.h"
#include "comm/layout.h"
#include "data/loader.h"
#include "engine/config/schedule.h"
#include "engine/model.h"
#include "engine/optimizer.h"
#include "engine/part_sums.h"
#include "engine/rank_sums.h"

namespace assay {

// The next batch cannot be read: on any rank, and for any reason. Nothing of its step was computed.
struct NoBatch : UserError {
  using UserError::UserError;
};

struct StepStats {
  int64_t step = 0;  // from 0
  double loss = 0;   // nats per counted target, over the whole step
  double lr = 0;     // of the main parameter groups
  double gradient_norm = 0;
  double clip = 1;
  int64_t non_finite = 0;  // gradient elements that are not finite
  NotFiniteOperand not_finite_operand = {};
  int64_t counted = 0;  // targets in the loss
  // By Trainer::add_hash(), else 0.
  uint32_t hash = 0;        // of loss, norm and parameters: equal runs have equal hashes
  uint64_t bias_hash = 0;   // with ranks: of the routers' selection bias
  bool sampled = false;     // ratios and quantisation measures were taken
  GroupRatios ratios = {};  // NaN if the step was not sampled
  std::span<const SourceUse> sources = {};  // of a mixture, up to this step; valid until the next
  // Of this rank in the step, over all of its groups (comm/group.h); 0 if there is one rank.
  int64_t sent_bytes = 0;
  double wait_s = 0;  // inside calls
};

// The ranks that share a batch, as a step sees them.
struct TrainingRanks {
  Layout layout;
  Group& group;  // for the host's memory
  Group& model;  // for the model's memory
  const RankSums& sums;
  // With expert_ranks > 1, else null: the ranks of this one's expert group, for the host's memory;
  // sums over the replicas of its experts, null if there is one.
  Group* experts = nullptr;
  const RankSums* expert_sums = nullptr;
  // The groups that expert_ranks adds, each once.
  std::vector<const Group*> of_experts = {};

  // Of this rank so far, over all of its groups.
  struct Exchanged {
    uint64_t bytes = 0;
    std::chrono::nanoseconds time_in_calls{0};
  };
  Exchanged exchanged() const;
};

// What follows the backward pass in a step: the ranks add their gradients, the optimizer steps, the
// routers' bias follows the load. Queued; collective with ranks (null: this is the only one).
void step_parameters(Exec on, Model& model, Optimizer& optimizer, const TrainingRanks* ranks,
                     int64_t step_index, double lr_share, Optimizer::Sample sample);

class Trainer {
 public:
  // ranks: those that share the batch; null: this is the only one.
  Trainer(const Config& config, Model& model, const PartSums& sums, Optimizer& optimizer,
          Loader& loader, int mask_id, const TrainingRanks* ranks = nullptr)
      : schedule_(make_schedule(config)),
        sequence_(config.run.sequence),
        micro_batch_(config.run.micro_batch),
        peak_lr_(config.optimizer.lr),
        mask_id_(mask_id),
        recipe_steps_(recipe_steps(config)),
        model_(model),
        sums_(sums),
        optimizer_(optimizer),
        loader_(loader),
        ranks_(ranks) {}

  // kRatios: gradient and update ratios, and what quantisation loses.
  enum class Measure { kNothing, kRatios };
  // Runs step `step_index` (from 0) and waits for it. with_data: called when its batch has been
  // read, before ranks wait for each other.
  StepStats step(Exec on, int64_t step_index, Measure measure = Measure::kNothing,
                 const std::function<void()>& with_data = {});
  // Adds the hashes to what the last step returned, and waits. They read every parameter once: in a
  // mixture that is much beside the parameters that a token computes with, so they are no part of
  // the step and of its time, and steps that are not logged have none. Collective where ranks share
  // the experts.
  void add_hash(Exec on, StepStats& stats) const;
  const Schedule& schedule() const { return schedule_; }

 private:
  TokenBatch micro(int64_t i) const;
  // Advances the loader; the targets that count in the whole batch. Throws NoBatch.
  int64_t next_batch(const std::function<void()>& with_data);
  // The gradients of this rank's share of the batch, part by part.
  void forward_backward(Exec on);
  StepStats read_stats(int64_t step_index, double share, int64_t counted, Measure measure) const;

  Schedule schedule_;
  int64_t sequence_, micro_batch_;
  double peak_lr_;
  int mask_id_;
  int64_t recipe_steps_;
  Model& model_;
  const PartSums& sums_;
  Optimizer& optimizer_;
  Loader& loader_;
  const TrainingRanks* ranks_;
};

}  // namespace assay
