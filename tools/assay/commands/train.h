// Training as `assay train` does it, for other commands that train a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/ranks.h"
#include "session/training_run.h"
#include "session/training_warnings.h"

namespace assay {

struct TrainCall {
  Config config;
  std::string note;                 // for the log; may be empty
  std::string random_weights = {};  // a warning, if the run is new; may be empty
  TrainingRunOptions options;
  std::string device = "auto";
  std::optional<int64_t> stop_after = {};
  bool share_gpu = false, json = false;
  IsGiven is_given = {};  // session/training_warnings.h
};

// As this process's rank of `ranks`, or alone: trains until the run ends or is interrupted, and
// reports. Returns the exit code.
int train_here(const TrainCall& call, Ranks* ranks);

}  // namespace assay
