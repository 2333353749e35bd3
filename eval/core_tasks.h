// The tasks of CORE during training, scored by one rank or shared by several: every rank gets the
// same answers, to the bit those of one rank in every recipe.
//
// Ranks share blocks of neighbouring rows (kCoreBlock), since answers of rows that are computed
// together may depend on each other. The blocks are dealt in rounds, one for each rank, those with
// the most work first, so that ranks wait little for each other. After each round the ranks agree
// whether to go on: an interrupt of one rank ends the evaluation on all after the same round.
#pragma once

#include <optional>
#include <vector>

#include "comm/group.h"
#include "engine/evaluator.h"
#include "eval/core_run.h"

namespace assay {

struct CoreTasks {
  const std::vector<CoreExamples>& examples;
  const std::vector<int64_t>& tokens;  // estimated_tokens() of each
  const Tokenizer& tokenizer;
  int64_t max_tokens = 0;  // per prompt; 0 = no limit
};

struct CoreTaskScores {
  std::vector<CoreTaskResult> tasks;
  std::vector<double> seconds;  // per task, of all ranks together
  CoreWork work;                // likewise
  int64_t rows_computed = 0;    // likewise
};

// ranks: as in eval/ranks.h; the call is collective. nullopt if interrupted, which is asked after
// each block. UserError on all ranks if it is thrown on one.
std::optional<CoreTaskScores> score_core_tasks(Group* ranks, ModelScorer& scorer,
                                               const CoreTasks& tasks, const EvalWatch& watch);

}  // namespace assay
