// Scores CORE of a checkpoint, for `assay eval --tasks core`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/runs/core_report.h"
#include "session/loaded_model.h"

namespace assay {

struct CoreEvaluation {
  std::string bundle;
  std::vector<std::string> tasks = {};  // labels; empty: all tasks of the bundle
  std::string tokenizer = "";           // "": the run's
  std::string device = "auto";
  int64_t max_rows = 0;               // per task, 0: all
  int64_t max_tokens = 0;             // per prompt, 0: the sequence length of training
  int64_t batch = 0;                  // tokens per forward pass; <= 0: the device's default
  std::optional<CorePart> part = {};  // share of one of several processes
  ScorerConfig::Way way = ScorerConfig::Way::kBatches;
};

// Tokens per forward pass: evaluation.batch, or if it is <= 0 the device's default, which on a CPU
// keeps activations near its caches.
int64_t batch_rows(const CoreEvaluation& evaluation);

// Loads the model and scores the tasks; progress goes to stderr. UserError when bundle, tokenizer
// or device cannot be used. report.origin is set only for a part.
// ranks: those that share the rows (eval/core_tasks.h), or null; the call is then collective, and
// all get the report.
CoreReport evaluate_core(const CheckpointSource& source, const CoreEvaluation& evaluation,
                         Ranks* ranks = nullptr);

}  // namespace assay
