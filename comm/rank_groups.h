// The groups in which a rank moves the memory of its model (comm/layout.h).
#pragma once

#include "comm/group.h"

namespace assay {

struct RankGroups {
  Group* all = nullptr;  // null: one rank, or memory is only planned
  // With expert_ranks > 1, else null: the ranks that hold the experts together, in the order of
  // their positions; and those that have the same experts, in the order of their replicas.
  Group* experts = nullptr;
  Group* replicas = nullptr;
  // The ranks of `experts`, for the host's memory: the same group where the model is there.
  Group* experts_on_host = nullptr;
};

}  // namespace assay
