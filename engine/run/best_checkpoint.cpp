#include "engine/run/best_checkpoint.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "comm/agree.h"

namespace assay {

BestCheckpoint::BestCheckpoint(RunParts& parts, const RunStart& start)
    : p_(parts), group_(parts.ranks ? &parts.ranks->group : nullptr) {
  if (parts.config.run.keep_best) best_ = of_first_rank(group_, marked_before(start));
}

// Of a checkpoint up to where the run goes on; the telemetry may be lost, or older.
double BestCheckpoint::loss_before(int64_t step, const RunStart& start, double unknown) const {
  const double saved = step == start.best.step ? start.best.loss_nats : unknown;
  return p_.recorder.validation_loss(step).value_or(saved);
}

// One from after the run's step is damaged, or the run would go on from it. If nobody knows its
// loss it stays the best: it cannot be had again.
BestLoss BestCheckpoint::marked_before(const RunStart& start) const {
  const std::optional<int64_t> marked = p_.checkpoints.best_step();
  if (!marked || *marked > start.steps_done) return {};
  return {.step = *marked,
          .loss_nats = loss_before(*marked, start, -std::numeric_limits<double>::infinity())};
}

void BestCheckpoint::finish_last_save(const RunStart& start) {
  const int64_t step = start.steps_done;
  if (p_.config.run.keep_best) {
    const BestLoss last{.step = step, .loss_nats = loss_before(step, start, BestLoss{}.loss_nats)};
    if (improve(of_first_rank(group_, last))) p_.checkpoints.mark_best(step);
    if (std::isinf(best_.loss_nats) && best_.step >= 0) {
      p_.recorder.event(step, "best_unknown",
                        strprintf("no record has the validation loss of step %ld, whose checkpoint "
                                  "stays the best one",
                                  long(best_.step)));
    }
    record_not_kept(step);
  }
  p_.checkpoints.tidy(step);
}

// Of a run that was not told to keep its best checkpoint from the start, perhaps.
void BestCheckpoint::record_not_kept(int64_t step) {
  const std::optional<StepValue> lowest = p_.recorder.lowest_validation_loss();
  if (!lowest || !(lowest->value < best_.loss_nats)) return;
  const std::string of =
      best_.step < 0 ? "no checkpoint is marked yet"
                     : strprintf("that of step %ld is %.4f", long(best_.step), best_.loss_nats);
  p_.recorder.event_once(
      step, "best_not_kept",
      strprintf("the lowest validation loss, %.4f at step %ld, has no checkpoint that "
                "is marked as the best one: %s",
                lowest->value, long(lowest->step), of.c_str()));
}

void BestCheckpoint::validated(int64_t step, double loss_nats) {
  if (p_.config.run.keep_best && improve({.step = step, .loss_nats = loss_nats})) to_save_ = true;
}

void BestCheckpoint::saved() {
  if (to_save_) p_.checkpoints.mark_best(best_.step);
  to_save_ = false;
}

bool BestCheckpoint::improve(const BestLoss& other) {
  if (!(other.loss_nats < best_.loss_nats)) return false;
  best_ = other;
  return true;
}

}  // namespace assay
