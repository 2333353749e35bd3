// Hand-made run records, for tests of the analysis.
#pragma once

#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

struct HandMadeRun {
  std::string name;
  int64_t seed = 1;
  std::vector<EvalValue> val_loss_nats = {};
  int64_t steps = 100;  // planned
};

// A dense run with 1000 tokens and half a second per step, finished at its last evaluation.
inline RunRecord hand_made(const HandMadeRun& what) {
  RunRecord run;
  run.name = what.name;
  run.path = "runs/" + what.name;
  run.config.run.seed = what.seed;
  run.config.run.steps = what.steps;
  run.config.run.batch_tokens = 1000;
  run.audit.total = run.audit.active = 5000;
  run.audit.flops_per_token = 30;
  run.val_loss_nats = what.val_loss_nats;
  if (!run.val_loss_nats.empty()) run.steps_done = run.val_loss_nats.back().step;
  run.tokens = run.steps_done * run.config.run.batch_tokens;
  for (int64_t step = 10; step <= run.steps_done; step += 10)
    run.train_s.push_back({.step = step, .value = 0.5 * double(step)});
  run.end = "steps";
  return run;
}

}  // namespace assay
