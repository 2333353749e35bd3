// Section parallel: how a step's batch is cut, and what ranks share.
#pragma once

#include <cstdint>

#include "engine/config/field_check.h"

namespace assay {

struct ParallelConfig {
  int64_t parts = 0;
  int64_t expert_ranks = 1;
  double expert_rows = 1.5;
  double silence_s = 20;
  double stuck_s = 900;

  // Of the step's batch; a run on one rank until `parts` is resolved (session/resolve_run.h).
  int64_t batch_parts() const { return parts > 0 ? parts : 1; }
};

template <typename V>
void visit(V& v, ParallelConfig& c) {
  v("parts", c.parts,
    "equal parts of a step's batch, whose gradients are added in a balanced tree; the bits of a "
    "run depend on it, not on the number of ranks; 0: as many as the run's first launch has ranks",
    between(0, 65536));
  v("expert_ranks", c.expert_ranks,
    "consecutive ranks that hold the routed experts together, each an equal share; divides the "
    "ranks and the experts",
    free_on_resume(between(1, 4096)));
  v("expert_rows", c.expert_rows,
    "with expert_ranks > 1: rows that a rank has memory for, relative to the average; more take "
    "further rounds",
    free_on_resume(between(0.01, 64)));
  v("silence_s", c.silence_s,
    "seconds without a sign of life after which a rank counts as lost, and all ranks end",
    free_on_resume(between(2, 86400)));
  v("stuck_s", c.stuck_s,
    "seconds after which a rank that does not come where the others wait counts as lost, and, with "
    "GPUs, ranks none of which begins anything new; saving and evaluating may take longer",
    free_on_resume(between(1, 604800)));
}

}  // namespace assay
