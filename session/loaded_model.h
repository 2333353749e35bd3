// A model from a checkpoint, ready to evaluate: what `assay eval` works on.
#pragma once

#include <memory>
#include <string>

#include "data/bpe.h"
#include "engine/run/checkpoint.h"
#include "session/session.h"

namespace assay {

// A checkpoint's place, state and configuration as its run resolved it; no tensor is read.
struct CheckpointSource {
  std::string folder;
  TrainingState state;
  Config config;
};
// The checkpoint meant by a user: a checkpoint folder, or the newest valid one of a run.
CheckpointSource open_checkpoint(const std::string& run_or_checkpoint);

// The tokenizer a checkpoint was trained with, or the one at `path`. UserError when there is none,
// when it has no <|endoftext|>, and when it has more tokens than the model.
Tokenizer checkpoint_tokenizer(const CheckpointSource& source, const std::string& path);

struct EvaluationSize {
  int64_t positions = 0;  // the longest text
  int64_t rows = 0;       // at once
};

// Memory, device and weights. Work beside the model's is planned before allocate().
struct LoadedModel {
  LoadedModel(const CheckpointSource& source, const std::string& device, EvaluationSize size,
              int32_t mask_id = -1);
  void allocate();  // and load

  const CheckpointSource& source;
  Session session;
  int64_t rows;  // planned for
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  View<std::byte, 1> workspace;
  Exec on;
};

}  // namespace assay
