// What bench_step times: whole optimizer steps of a configured model on random tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/profile.h"
#include "engine/trainer.h"
#include "session/session.h"

namespace assay {

// Of a step, of all ranks.
int64_t micro_batches_of(const Config& config);

// A model, its optimizer, and the tokens of one step that are this rank's; all steps see the same.
class StepTraining {
 public:
  // Allocates and initialises. The session outlives it.
  explicit StepTraining(const Session& session);
  StepTraining(const StepTraining&) = delete;
  StepTraining& operator=(const StepTraining&) = delete;

  enum class Sampled { kNo, kYes };

  // Optimizer step `i`; waits for its end. profile: null, or what its ops are added to.
  void step(int64_t i, Sampled sampled, Profile* profile);

  int64_t batch_tokens() const { return tokens() * layout_.ranks; }  // of a step
  double loss() const;                                               // of the last step
  size_t memory_bytes() const { return memory_.plan.bytes_on(on_.gpu); }
  Exec on() const { return on_; }

 private:
  int64_t micro_tokens() const { return config_.run.sequence * config_.run.micro_batch; }
  int64_t tokens() const { return micro_tokens() * micro_batches_; }
  void zero_gradients(Exec on, int64_t i, Sampled sampled);

  const Config& config_;
  const Layout layout_;
  int64_t micro_batches_;
  TrainingMemory memory_;
  std::optional<TrainingRanks> ranks_;
  Exec on_;
  View<int32_t, 1> tokens_;
};

}  // namespace assay
