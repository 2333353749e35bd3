// Evaluation as the run sees it: an object that is due at some steps and gives named results. eval/ implements it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model.h"

namespace assay {

struct EvalResult {
  std::string task;    // "val"
  std::string metric;  // "loss_nats", "bits_per_byte"
  double value = 0;
  int64_t n = 0;  // what it is a mean over
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // steps_done optimizer steps of `steps` are behind us.
  virtual bool due(int64_t steps_done, int64_t steps) const = 0;
  // The first result is the one that run.target_loss looks at.
  virtual std::vector<EvalResult> run(Exec on, Model& model) = 0;
};

}  // namespace assay
