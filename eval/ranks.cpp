#include "eval/ranks.h"

#include "comm/agree.h"

namespace assay {

EvalWatch EvaluationRanks::in_step(const EvalWatch& watch) const {
  if (together == nullptr) return watch;
  EvalWatch asking = watch;
  asking.interrupted = [group = together, mine = watch.interrupted] {
    return on_any_rank(group, mine && mine());
  };
  return asking;
}

PartEnd run_part(Group* ranks, const std::function<PartEnd()>& part) {
  if (size_of(ranks) == 1) return part();
  const PartEnd end = together(*ranks, part);
  return on_any_rank(ranks, end == PartEnd::kInterrupted) ? PartEnd::kInterrupted : PartEnd::kDone;
}

}  // namespace assay
