// Communication on a lane beside the main stream, ordered by edges alone.
#pragma once

#include "comm/group.h"

namespace assay {

// Two edges a round: the lane gathers behind what main has made, main reads behind the lane.
enum class Edge { kNone, kGatherBehindMade, kReadBehindGather };

// Three rounds, then three more with other numbers: main copies a number into place, the lane
// gathers those of all ranks, main copies them away. The second round of each three leaves out the
// edge `missing`. Recorded or not. Whether every number was right on this rank.
bool gathers_beside_main(Group& group, Exec main, Exec lane, Edge missing, bool recorded);

}  // namespace assay
