// The checkpoint with the lowest validation loss (run.keep_best), over all processes of a run: its
// loss is that of the telemetry, or of the checkpoints where the telemetry was lost.
//
//   BestCheckpoint best(parts, start);
//   best.finish_last_save(start);         // when a run goes on
//   best.validated(step, loss_nats);
//   if (best.to_save()) { ...save...; best.saved(); }
#pragma once

#include <cstdint>

#include "engine/run/run.h"

namespace assay {

class BestCheckpoint {
 public:
  // Looks for the one that is marked. Collective.
  BestCheckpoint(RunParts& parts, const RunStart& start);

  // The process before may have been killed when its last checkpoint was there, but neither marked
  // as the best one nor older ones removed. Call it when the telemetry has the rows that count.
  // Collective.
  void finish_last_save(const RunStart& start);

  // Of a step that is not saved yet. All ranks give the same loss.
  void validated(int64_t step, double loss_nats);
  // Whether the step is the best one, and has to be saved.
  bool to_save() const { return to_save_; }
  // The step is saved: marks its checkpoint if it is the best one.
  void saved();

  const BestLoss& so_far() const { return best_; }

 private:
  BestLoss marked_before(const RunStart& start) const;
  double loss_before(int64_t step, const RunStart& start, double unknown) const;
  bool improve(const BestLoss& other);
  void record_not_kept(int64_t step);

  RunParts& p_;
  Group* const group_;  // null: one rank
  BestLoss best_;
  bool to_save_ = false;
};

}  // namespace assay
