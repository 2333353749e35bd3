#include "eval/ranks.h"

#include "comm/agree.h"

namespace assay {

PartEnd run_part(Group* ranks, const std::function<PartEnd()>& part) {
  if (size_of(ranks) == 1) return part();
  const PartEnd end = together(*ranks, part);
  return on_any_rank(ranks, end == PartEnd::kInterrupted) ? PartEnd::kInterrupted : PartEnd::kDone;
}

}  // namespace assay
