// What a run does beside its steps, evaluations and saves: how long what is left of it takes, at
// the mean of what this process has measured of each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/evaluator.h"
#include "engine/run/landing.h"

namespace assay {

class OtherWork {
 public:
  // The evaluators and the landings must outlive it.
  OtherWork(const RunConfig& run, std::span<Evaluator* const> evaluators,
            std::span<const Landing> landings);

  void evaluated(const Evaluator& evaluator, double seconds);
  void saved(double seconds);

  // From the end of step `done` (at least 1) on, with the evaluations and the save that follow it.
  // steps_s: what the steps that are left take. What was not measured yet, and saves of a better
  // loss (run.keep_best), which nobody can foresee, are left out.
  double seconds_left(int64_t done, double steps_s) const;

  // How often, by the same rule.
  int64_t evaluations_left(const Evaluator& evaluator, int64_t done) const;
  int64_t saves_left(int64_t done, double steps_s) const;

 private:
  struct Mean {
    double sum = 0;
    int64_t n = 0;
    void add(double seconds);
    double value() const { return n > 0 ? sum / double(n) : 0; }
  };

  const RunConfig run_;
  const std::span<Evaluator* const> evaluators_;
  const std::span<const Landing> landings_;
  std::vector<Mean> evaluation_s_;  // of evaluators_
  Mean save_s_;
};

// Between two checkpoints by time, of which one took save_s. run.checkpoint_minutes is not 0.
double seconds_between_saves(const RunConfig& run, double save_s);

}  // namespace assay
