// What evaluations that ranks share have in common. `ranks` is a group that moves host memory, or
// null: this process alone, for which nothing is exchanged.
#pragma once

#include <functional>

#include "comm/group.h"

namespace assay {

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

}  // namespace assay
