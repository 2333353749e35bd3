// What a run has done when a launch goes on with it: the checkpoint that it goes on from, and what
// the launch may no longer change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/config.h"
#include "engine/run/checkpoint.h"
#include "engine/run/run_dir.h"
#include "session/session.h"

namespace assay {

class RunSoFar {
 public:
  RunSoFar() = default;  // nothing
  // By the newest valid checkpoint; nothing if the run has saved none yet. UserError when it has
  // checkpoints, but no valid one. Collective with ranks.
  explicit RunSoFar(Checkpoints& checkpoints);

  const std::optional<std::string>& checkpoint() const { return checkpoint_; }
  const TrainingState& state() const { return state_; }
  int64_t steps() const { return state_.step; }  // 0 also of an import
  // That of the launch that saved the checkpoint. There is one.
  Config configuration() const;

  // UserError naming each difference that would change results of the steps made: from the
  // configuration that the folder has, and from that of the checkpoint.
  void require_configuration(const RunDir& dir, const Config& now) const;
  // UserError if a run that makes no further step was trained in another precision.
  void require_precision(const RunDir& dir, const Session& now) const;
  // The precision in which it was trained, if the session has another one.
  std::optional<PrecisionConfig> other_precision(const Session& now) const;

 private:
  std::optional<std::string> checkpoint_;
  TrainingState state_;
};

}  // namespace assay
