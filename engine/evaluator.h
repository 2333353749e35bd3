// The interface of an evaluation: it is due at some steps and gives named results. eval/ and
// session/ implement it.
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
  int64_t n = 0;  // number of items that the value is a mean over
};

struct Evaluation {
  std::vector<EvalResult> results;
  std::string text = "";  // lines for the log; "" = the results
};

// A point between two steps of a run.
struct EvalMoment {
  int64_t steps_done = 0;
  bool landing = false;  // a landing of the contract
  bool last = false;     // no step follows: all are done, or run.target_loss is reached
};

// Callbacks of a long evaluation; both may be empty.
struct EvalWatch {
  std::function<void(const std::string& what, double share)> progress;  // share done, in [0, 1]
  std::function<bool()> interrupted;
};

// With several ranks every rank calls evaluate() at the same moments, and gets the same result or
// throws the same UserError. Only the first writes files. An evaluation may be interrupted by
// `interrupted` of one rank; then it is on all.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // The task of one of its results: if telemetry has it for a step, the evaluation was done there.
  virtual std::string task() const = 0;
  virtual bool due(const EvalMoment& at) const = 0;
  // It is due whenever so many steps more are done; 0: only at landings or at the last step.
  virtual int64_t every() const = 0;
  // Does not change the training state. The first result of a run's first evaluator is compared
  // with run.target_loss. Returns nullopt if interrupted: the resumed run evaluates again.
  virtual std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                             const EvalWatch& watch) = 0;
};

}  // namespace assay
