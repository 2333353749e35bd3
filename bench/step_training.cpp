#include "bench/step_training.h"

#include "base/random.h"
#include "cuda/context.h"
#include "cuda/transfer.h"
#include "models/decoder/decoder.h"

namespace assay {

int64_t micro_batches_of(const Config& config) {
  return config.run.batch_tokens / config.run.sequence / config.run.micro_batch;
}

StepTraining::StepTraining(const Session& session)
    : config_(session.config),
      layout_(layout_of(config_, session.place())),
      micro_batches_(micro_batches_of(config_) / layout_.ranks),
      memory_(config_, session.recipe, session.place(), session.model_groups()),
      on_(session.exec()) {
  if (session.ranks)
    ranks_.emplace(TrainingRanks{layout_, *session.host_group(), *session.model_group(),
                                 *memory_.rank_sums, session.expert_group,
                                 memory_.expert_sums.get()});
  memory_.plan.add(Section::kData, "tokens", tokens_, {tokens() + 1});
  memory_.allocate(config_, session.recipe, on_.gpu);
  memory_.bind(on_);
  memory_.model->initialise(on_, 1);
  memory_.model->refresh_weights(on_);
  RandomSequence random({7, stream_id("bench_step"), uint32_t(layout_.rank)});
  for (int64_t i = 0; i <= tokens(); ++i) {
    tokens_[i] = int32_t(random.below(uint32_t(config_.model.vocab_size)));
  }
}

void StepTraining::step(int64_t i, Sampled sampled, Profile* profile) {
  using Sample = Optimizer::Sample;
  Exec on = on_;
  on.profile = profile;
  Model& model = *memory_.model;
  Optimizer& optimizer = *memory_.optimizer;
  zero_gradients(on, i, sampled);
  const int64_t parts = layout_.local_parts(), micros = micro_batches_ / parts;
  for (int64_t part = 0; part < parts; ++part) {
    if (part > 0) model.next_part(on);
    for (int64_t m = part * micros; m < (part + 1) * micros; ++m) {
      const int64_t first = m * micro_tokens();
      model.forward_backward(on, {.token = tokens_.rows(first, micro_tokens()),
                                  .target = tokens_.rows(first + 1, micro_tokens()),
                                  .batch = config_.run.micro_batch,
                                  .sequence = config_.run.sequence});
    }
    memory_.sums->end_part(on, part);
  }
  step_parameters(on, model, optimizer, ranks_ ? &*ranks_ : nullptr, i, 1.0,
                  sampled == Sampled::kYes ? Sample::kRatios : Sample::kNothing);
  model.read_back(on);
  optimizer.read_back(on);
  wait(on);
  if (profile) profile->settle(on);
  if (ranks_) model.gather_results(ranks_->group);
}

double StepTraining::loss() const {
  return memory_.model->loss_sum() / double(batch_tokens());
}

void StepTraining::zero_gradients(Exec on, int64_t i, Sampled sampled) {
  using Sample = MicroScale::Sample;
  const ProfileScope timed(on, "zero gradients");
  memory_.model->begin_step(
      on, {.loss = 1.0f / float(batch_tokens()),
           .micro_share = 1.0f / float(micro_batches_ * layout_.ranks),
           .first_micro = (i * layout_.ranks + layout_.rank) * micro_batches_,
           .sample = sampled == Sampled::kYes ? Sample::kFormats : Sample::kNothing});
}

}  // namespace assay
