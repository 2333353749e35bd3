// What evaluations that ranks share have in common. `ranks` is a group that moves host memory, or
// null: this process alone, for which nothing is exchanged.
#pragma once

#include <functional>

#include "base/check.h"
#include "comm/group.h"
#include "engine/evaluator.h"

namespace assay {

// The ranks of an evaluation. Where ranks share the experts, a pass of one needs all of its expert
// group: `together` are those that then do the same work in step, each its own copy of it, and
// `sharing` are one of each such group, which share the work.
struct EvaluationRanks {
  EvaluationRanks(Group* ranks = nullptr) : all(ranks), sharing(ranks) {}
  EvaluationRanks(Group* ranks, Group* expert_group, Group* replicas)
      : all(ranks), together(expert_group), sharing(expert_group == nullptr ? ranks : replicas) {}

  bool first() const { return all == nullptr || all->rank() == 0; }
  // Asks all of `together`, so that they stop after the same pass.
  EvalWatch in_step(const EvalWatch& watch) const;

  Group* all = nullptr;
  Group* together = nullptr;  // null: each rank computes its passes alone
  Group* sharing = nullptr;
};

inline int size_of(const Group* ranks) {
  return ranks == nullptr ? 1 : ranks->size();
}
inline int rank_of(const Group* ranks) {
  return ranks == nullptr ? 0 : ranks->rank();
}

// Runs this rank's part of some work, which makes no collective call, then waits for the others, so
// that all go on alike: kInterrupted if a part was, on any rank; where parts threw a UserError all
// ranks throw that of the first of these ranks, with its number. Collective.
enum class PartEnd { kDone, kInterrupted };
PartEnd run_part(Group* ranks, const std::function<PartEnd()>& part);

// A UserError that follows from what was computed, so that all ranks of `together` have it.
class ComputedError : public UserError {
 public:
  using UserError::UserError;
};

// The same of a part that ranks.sharing share, and whose passes ranks.together compute. Where only
// a ComputedError was thrown none waits for another, and all ranks throw one FailedOnAll. After
// another error of one rank the others of its `together` may wait in a pass: it ends the run.
PartEnd run_shared_part(const EvaluationRanks& ranks, const std::function<PartEnd()>& part);

}  // namespace assay
