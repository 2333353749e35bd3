// Evaluation as the run sees it: an object that is due at some steps and gives named results. eval/
// and tools/ implement it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

struct Evaluation {
  std::vector<EvalResult> results;
  std::string text = "";  // for the log, lines; "" = the results
};

// A place in the run.
struct EvalMoment {
  int64_t steps_done = 0;
  bool landing = false;  // of the contract
  bool last = false;     // no step follows: all are done, or run.target_loss is reached
};

// What a long evaluation tells and asks on its way.
struct EvalWatch {
  std::function<void(const std::string& what, double share)> progress;  // share done, in [0, 1]
  std::function<bool()> interrupted;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Of one of its results: where telemetry has this task, the evaluation was done.
  virtual std::string task() const = 0;
  virtual bool due(const EvalMoment& at) const = 0;
  // Leaves what training goes on with alone. Of a run's first evaluator the first result is the one
  // that run.target_loss looks at. Nothing when it was interrupted: the run that goes on does it
  // again.
  virtual std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                             const EvalWatch& watch) = 0;
};

}  // namespace assay
