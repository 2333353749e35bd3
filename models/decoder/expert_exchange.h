// How the ranks of an expert group, each with an equal share of the routed experts, get the rows of
// each other's tokens to the experts and back (parallel.expert_ranks). One object a MoE sublayer.
//
// The A assignments of a rank lie in slots sorted by expert (ops/dispatch.h), so what goes to one
// rank is one run of slots. A rank receives the runs of all ranks, its sources, one after the
// other, each in the order of its slots: the rows, and their order, that the experts would get if
// they were where the tokens are.
//
// A rank has memory for a planned number of rows. If the routers send it more, all exchange in
// several rounds: round r has the rows [r rows, (r + 1) rows) of what each rank receives in all.
// All make the same calls, whatever the loads, also those that send or receive nothing.
//
// The host must know how many rows go where, so on a GPU it waits once a routing. That is the only
// wait of a micro-batch, and the reason why its kernels cannot be recorded as a graph.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/layout.h"
#include "comm/rank_groups.h"
#include "cuda/exec.h"
#include "cuda/memory_plan.h"

namespace assay {

class ExpertExchange {
 public:
  // groups: null if memory is only planned. rows: that a rank receives in one round, at most.
  ExpertExchange(const Layout& layout, const RankGroups& groups, int64_t experts, int64_t rows);

  // assignments: of the largest micro-batch of any rank.
  void plan(MemoryPlan& plan, const std::string& name, int64_t assignments, Backend backend);
  // Collective: tells all ranks how many rows each has for each expert; waits for `on`. offsets
  // (E + 1): of this rank's slots. What follows is of this routing, until the next.
  void route(Exec on, View<const int32_t, 1> offsets);
  // The same on all ranks, at least 1.
  int64_t rounds() const { return rounds_; }

  // Collective. Rows of slots (A, ..) to the ranks of their experts: there they are rows of
  // `received` (rows, ..), source after source.
  template <typename T>
  void to_experts(Exec on, int64_t round, View<const T, 2> slots, View<T, 2> received) const {
    move(on, {received.data, slots.data, size_t(slots.dim[1]) * sizeof(T), round, Way::kToExperts});
  }
  // Collective, the way back. The other rounds' slots are not touched.
  template <typename T>
  void from_experts(Exec on, int64_t round, View<const T, 2> computed, View<T, 2> slots) const {
    move(on, {slots.data, computed.data, size_t(slots.dim[1]) * sizeof(T), round, Way::kBack});
  }

  // The rows of one source in a round: received rows [first, first + count).
  struct Source {
    int64_t first = 0, count = 0;
    // (E / ranks + 1)   of this rank's experts, from 0, where the ops run. They stay as they are
    // until the next route(), so what was queued may read them.
    View<const int32_t, 1> offsets;
  };
  // Of every rank of the group, in order; valid until the next call of it or of route().
  const std::vector<Source>& sources(int64_t round);

 private:
  // The run of `from`'s slots that go to rank `to` in a round: `slot` the first of them, `row`
  // where they are received, `skipped` those of earlier rounds.
  struct Piece {
    int64_t slot = 0, row = 0, count = 0, skipped = 0;
  };
  Piece piece(int64_t round, int from, int to) const;
  enum class Way { kToExperts, kBack };
  struct Move {
    void* to;
    const void* from;
    size_t row_bytes;
    int64_t round;
    Way way;
  };
  void move(Exec on, const Move& m) const;
  int64_t local() const { return experts_ / ranks_; }
  // The offsets of all sources in all rounds, where the host and where the ops find them.
  void write_source_offsets(Exec on);

  const int ranks_, rank_;
  const RankGroups groups_;
  const int64_t experts_, rows_;
  int64_t rounds_ = 1;
  View<int32_t, 2> offsets_;  // (ranks, E + 1)   of everybody's slots, on the host
  // (rounds * ranks, E / ranks + 1)   for as many rounds as there can be; on the host, and with
  // Backend::kGpu on the GPU.
  View<int32_t, 2> source_offsets_, gpu_source_offsets_;
  std::vector<Source> sources_;
};

}  // namespace assay
