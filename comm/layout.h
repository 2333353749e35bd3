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

  int64_t local_parts() const { return parts / ranks; }
  int64_t first_part() const { return rank * local_parts(); }
  bool first() const { return rank == 0; }

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
