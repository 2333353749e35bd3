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

PartEnd run_shared_part(const EvaluationRanks& ranks, const std::function<PartEnd()>& part) {
  if (ranks.together == nullptr) return run_part(ranks.sharing, part);
  bool other_error = false;
  const auto noting = [&] {
    try {
      return part();
    } catch (const ComputedError&) {
      throw;
    } catch (...) {
      other_error = true;
      throw;
    }
  };
  try {
    return run_part(ranks.sharing, noting);
  } catch (const UserError& error) {
    if (on_any_rank(ranks.sharing, other_error)) throw;
    throw FailedOnAll(error.what(), error.hint(), size_of(ranks.all));
  }
}

}  // namespace assay
