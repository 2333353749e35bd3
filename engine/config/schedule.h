// The learning rate as a pure function of the step: warm-up, hold, decay (WSD). Steps count from 0.
//
//   step < warmup            (step + 1) / warmup
//   step < steps - warmdown  1
//   linear                   (steps - step) / warmdown: 1 at its first step, 1/warmdown at the last
//   cosine                   f + (1 - f) (1 + cos(pi p)) / 2, exactly the floor f at the last step
//                            p = (step + 1 - (steps - warmdown)) / warmdown
//
// The result is a share of the peak: each parameter group multiplies its own peak by it.
#pragma once

#include <cstdint>

#include "engine/config/config.h"

namespace assay {

struct Schedule {
  int64_t steps = 1;
  int64_t warmup = 0;
  int64_t warmdown = 0;
  DecayShape decay = DecayShape::kLinear;
  double floor_share = 0.0;  // of the peak

  // In [0, 1]; steps past the end get the last step's share.
  double share(int64_t step) const;
  // First step of the decay.
  int64_t decay_begin() const { return steps - warmdown; }
};

// The schedule of the run's steps: warmup_fraction and warmdown_fraction are shares of run.steps,
// rounded up. A cosine whose warmdown is 0 takes every step after the warm-up.
Schedule make_schedule(const Config& config);

// Number of steps before precision.bf16_tail; the tail is rounded up to whole steps.
int64_t recipe_steps(const Config& config);

// The formats of the last of `steps_done` steps, as evaluations record them: "bf16" in the tail of
// a recipe that quantises, else "recipe".
const char* precision_phase(const Config& config, int64_t steps_done);

// Whether the first `steps` steps of two runs of one recipe are in the same formats: in the
// recipe's up to the tail, in bf16 from there on. Always if the recipe quantises nothing.
bool same_formats(const Config& a, const Config& b, int64_t steps);

}  // namespace assay
