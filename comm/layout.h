// How a step's batch is spread over ranks: pure integers.
//
// The batch has `parts` equal parts (parallel.parts). A rank computes local_parts() neighbouring
// ones, and the sum over its parts is a node of the balanced tree over all of them
// (engine/part_sums.h). So any number of ranks for which this holds gives the same bits.
#pragma once

#include <cstdint>

namespace assay {

struct Layout {
  int ranks = 1, rank = 0;
  int64_t parts = 1;  // fits(parts, ranks)
  // Consecutive ranks that hold the routed experts together, an expert group: divides ranks and
  // experts. Each of them has an equal share of the experts; 1: every rank has all.
  int expert_ranks = 1;

  int64_t local_parts() const { return parts / ranks; }
  int64_t first_part() const { return rank * local_parts(); }
  bool first() const { return rank == 0; }

  // Of E experts this rank has those from expert_position() * E / expert_ranks on. Ranks with the
  // same position have the same experts: replicas() copies of them.
  int expert_position() const { return rank % expert_ranks; }
  int replica() const { return rank / expert_ranks; }
  int replicas() const { return ranks / expert_ranks; }

  // Whether the sum of each rank's parts is a node of the tree: one rank has them all, or each has
  // the same power of two.
  static constexpr bool fits(int64_t parts, int64_t ranks) {
    if (ranks == 1) return true;
    if (ranks < 1 || parts % ranks != 0) return false;
    const int64_t local = parts / ranks;
    return (local & (local - 1)) == 0;
  }
};

}  // namespace assay
