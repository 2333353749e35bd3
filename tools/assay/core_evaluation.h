// CORE of a checkpoint: `assay eval --tasks core`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/runs/core_report.h"
#include "session/loaded_model.h"

namespace assay {

struct CoreEvaluation {
  std::string bundle;
  std::vector<std::string> tasks = {};  // labels; none: all of the bundle
  std::string tokenizer = "";           // "": the run's
  std::string device = "auto";
  int64_t max_rows = 0;               // of a task, 0: all
  int64_t max_tokens = 0;             // of a prompt, 0: the sequence length of training
  int64_t batch = 4096;               // rows at once
  std::optional<CorePart> part = {};  // one of several processes
  ScorerConfig::Way way = ScorerConfig::Way::kBatches;
};

// The rows at once, as the device has it. On a CPU their activations then stay near its caches.
int64_t batch_rows(const CoreEvaluation& evaluation);

// UserError where bundle, tokenizer or device do not serve. The report of a part has an origin.
CoreReport evaluate_core(const CheckpointSource& source, const CoreEvaluation& evaluation);

}  // namespace assay
