#include "engine/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/step_count.h"
#include "comm/agree.h"
#include "cuda/transfer.h"
#include "data/shard.h"
#include "engine/same_bits.h"

namespace assay {

void step_parameters(Exec on, Model& model, Optimizer& optimizer, const TrainingRanks* ranks,
                     int64_t step_index, double lr_share, Optimizer::Sample sample) {
  if (ranks) {
    ranks->sums.add_gradients(on);
    if (ranks->expert_sums) ranks->expert_sums->add_gradients(on);
    optimizer.step(on, step_index, lr_share, sample, &ranks->model);
    ranks->sums.gather_masters(on);
    if (ranks->expert_sums) ranks->expert_sums->gather_masters(on);
    model.refresh_weights(on);
    model.sum_counts(on, ranks->model);
  } else {
    optimizer.step(on, step_index, lr_share, sample);
  }
  model.update_router_bias(on, static_cast<float>(lr_share));
}

TrainingRanks::Exchanged TrainingRanks::exchanged() const {
  Exchanged sum;
  const auto add = [&](const Group& of) {
    sum.bytes += of.bytes_sent();
    sum.time_in_calls += of.time_in_calls();
  };
  add(group);
  if (&model != &group) add(model);
  for (const Group* of : of_experts) add(*of);
  return sum;
}

StepStats Trainer::step(Exec on, int64_t step_index, Measure measure,
                        const std::function<void()>& with_data) {
  const auto before = ranks_ ? ranks_->exchanged() : TrainingRanks::Exchanged{};
  const double share = schedule_.share(step_index);
  const int64_t counted = next_batch(with_data);
  const Layout layout = ranks_ ? ranks_->layout : Layout{};
  const int64_t own = loader_.micro_batches(), all = own * layout.ranks;
  const MicroScale scale{.loss = static_cast<float>(1.0 / double(std::max<int64_t>(counted, 1))),
                         .micro_share = 1.0f / static_cast<float>(all),
                         .first_micro = step_index * all + layout.rank * own,
                         .sample = measure == Measure::kRatios ? MicroScale::Sample::kFormats
                                                               : MicroScale::Sample::kNothing};

  model_.enter(on, step_index < recipe_steps_ ? PrecisionPhase::kRecipe : PrecisionPhase::kBf16);
  model_.begin_step(on, scale);
  forward_backward(on);
  step_parameters(
      on, model_, optimizer_, ranks_, step_index, share,
      measure == Measure::kRatios ? Optimizer::Sample::kRatios : Optimizer::Sample::kNothing);
  model_.read_back(on);
  optimizer_.read_back(on);
  wait(on);
  if (ranks_) model_.gather_results(ranks_->group);
  StepStats stats = read_stats(step_index, share, counted, measure);
  if (ranks_) {
    const auto after = ranks_->exchanged();
    stats.sent_bytes = int64_t(after.bytes - before.bytes);
    stats.wait_s =
        std::chrono::duration<double>(after.time_in_calls - before.time_in_calls).count();
  }
  return stats;
}

// One rank that cannot read its data must not leave the others in the exchange of gradients: all of
// them throw.
int64_t Trainer::next_batch(const std::function<void()>& with_data) {
  constexpr int64_t kFailed = -1;
  std::string why, hint;
  int64_t counted = kFailed;
  try {
    loader_.next_step();
    counted = loader_.counted_targets(mask_id_);
  } catch (const UserError& error) {
    why = error.what();
    hint = error.hint();
  }
  if (with_data) with_data();
  if (!ranks_) {
    if (counted == kFailed) throw NoBatch(why, hint);
    return counted;
  }
  const std::vector<int64_t> of_ranks = gather(ranks_->group, counted);
  const auto failed = std::find(of_ranks.begin(), of_ranks.end(), kFailed);
  if (failed == of_ranks.end()) return std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{});
  const auto rank = size_t(failed - of_ranks.begin());
  throw NoBatch(strprintf("rank %zu: %s", rank, gather_texts(ranks_->group, why)[rank].c_str()),
                gather_texts(ranks_->group, hint)[rank]);
}

void Trainer::forward_backward(Exec on) {
  const int64_t micros = loader_.micro_batches() / sums_.parts();  // of a part
  for (int64_t part = 0; part < sums_.parts(); ++part) {
    if (part > 0) model_.next_part(on);
    for (int64_t i = 0; i < micros; ++i) model_.forward_backward(on, micro(part * micros + i));
    sums_.end_part(on, part);
  }
}

TokenBatch Trainer::micro(int64_t i) const {
  const Batch batch = loader_.micro(static_cast<int>(i));
  return {
      .token = batch.token, .target = batch.target, .batch = micro_batch_, .sequence = sequence_};
}

StepStats Trainer::read_stats(int64_t step_index, double share, int64_t counted,
                              Measure measure) const {
  StepStats stats{.step = step_index,
                  .loss = model_.loss_sum() / double(std::max<int64_t>(counted, 1)),
                  .lr = peak_lr_ * share,
                  .gradient_norm = optimizer_.gradient_norm(),
                  .clip = optimizer_.clip_factor(),
                  .non_finite = optimizer_.non_finite(),
                  .not_finite_operand = model_.not_finite_operand(),
                  .counted = counted,
                  .sources = loader_.source_use()};
  stats.sampled = measure == Measure::kRatios;
  if (stats.sampled) stats.ratios = optimizer_.ratios();
  return stats;
}

void Trainer::add_hash(Exec on, StepStats& stats) const {
  const std::array<uint64_t, 3> bits{
      std::bit_cast<uint64_t>(stats.loss), std::bit_cast<uint64_t>(stats.gradient_norm),
      optimizer_.parameter_checksum(on, ranks_ ? ranks_->experts : nullptr)};
  stats.hash = static_cast<uint32_t>(hash_words(bits.data(), bits.size()));
  if (ranks_) stats.bias_hash = bias_hash(model_.router_layers());
}

}  // namespace assay
