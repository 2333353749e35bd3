// One optimizer step. Everything a run does once in a while (evaluate, save, log) is around it, in
// engine/run/run.h.
#pragma once

#include <cstdint>
#include <span>

#include "data/loader.h"
#include "engine/config/schedule.h"
#include "engine/model.h"
#include "engine/optimizer.h"

namespace assay {

struct StepStats {
  int64_t step = 0;  // from 0
  double loss = 0;   // nats per counted target, over the whole step
  double lr = 0;     // of the main groups
  double gradient_norm = 0;
  double clip = 1;
  int64_t non_finite = 0;  // gradient elements
  NotFiniteOperand not_finite_operand = {};
  int64_t counted = 0;      // targets
  uint32_t hash = 0;        // of loss, norm and parameters: equal runs have equal hashes
  bool sampled = false;     // ratios, and what quantisation lost
  GroupRatios ratios = {};  // NaN where the step was not sampled
  std::span<const SourceUse> sources = {};  // of a mixture, up to this step; valid until the next
};

// Steps before precision.bf16_tail, which is rounded up to whole steps.
int64_t recipe_steps(const Config& config);

class Trainer {
 public:
  Trainer(const Config& config, Model& model, Optimizer& optimizer, Loader& loader, int mask_id)
      : schedule_(make_schedule(config)),
        sequence_(config.run.sequence),
        micro_batch_(config.run.micro_batch),
        peak_lr_(config.optimizer.lr),
        mask_id_(mask_id),
        recipe_steps_(recipe_steps(config)),
        model_(model),
        optimizer_(optimizer),
        loader_(loader) {}

  // The hash reads every parameter once; a step that is not logged does without.
  enum class Measure { kNothing, kHash, kHashAndRatios };
  StepStats step(Exec on, int64_t step_index, Measure measure = Measure::kHash);
  const Schedule& schedule() const { return schedule_; }

 private:
  TokenBatch micro(int i) const;
  StepStats read_stats(Exec on, int64_t step_index, double share, int64_t counted,
                       Measure measure) const;

  Schedule schedule_;
  int64_t sequence_, micro_batch_;
  double peak_lr_;
  int mask_id_;
  int64_t recipe_steps_;
  Model& model_;
  Optimizer& optimizer_;
  Loader& loader_;
};

}  // namespace assay
