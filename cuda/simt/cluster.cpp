#include "cuda/simt/cluster.h"

#include <vector>

#include "cuda/simt/mbarrier.h"
#include "cuda/simt/race.h"
#include "cuda/simt/scheduler.h"
#include "cuda/simt/threads.h"

namespace assay::simt {

namespace {

// Counts all threads of the cluster that have not exited. A thread's arrival and its wait are two
// steps, so it keeps the phase in which it arrived.
struct ClusterBarrier {
  struct OfThread {
    int arrived = 0;
    uint64_t phase = 0;
  };
  int running = 0;
  int arrived = 0;
  uint64_t phase = 0;
  ThreadSet waiting;
  std::vector<OfThread> of_thread;  // by slot
};
ClusterBarrier barrier;

void complete_if_all_arrived() {
  if (barrier.arrived == 0 || barrier.arrived < barrier.running) return;
  barrier.arrived = 0;
  ++barrier.phase;
  race_cluster_barrier_completes();
  Scheduler::instance().make_ready(barrier.waiting);
  barrier.waiting.clear();
}

// The lanes of a warp take a step together, which orders nothing between them.
void meet(const char* what, SourceLocation here) {
  needs(90, what, here);
  warp_collective(what, here, kAllLanes, nullptr, [](void* const(&)[kWarpLanes], uint32_t) {});
}

}  // namespace

void cluster_begins(int blocks, int threads) {
  barrier = {};
  barrier.running = blocks * threads;
}

void cluster_thread_exits(Thread& t) {
  --barrier.running;
  if (!barrier.of_thread.empty()) {
    const auto& mine = barrier.of_thread[size_t(t.slot)];
    if (mine.arrived && mine.phase == barrier.phase) --barrier.arrived;
  }
  complete_if_all_arrived();
}

void cluster_block_ends(Block& block) {
  require_no_copies(block);
  race_block_ends(block);
}

int cluster_rank(SourceLocation here) {
  needs(90, "cluster_rank", here);
  return self().block->rank;
}

void cluster_arrive(SourceLocation here) {
  meet("cluster_arrive", here);
  barrier.of_thread.resize(size_t(kMaxClusterThreads));
  auto& mine = barrier.of_thread[size_t(self().slot)];
  if (mine.arrived) fail(here, "cluster_arrive: the thread has not waited since its last arrival");
  mine = {1, barrier.phase};
  ++barrier.arrived;
  race_cluster_barrier_arrives();
  complete_if_all_arrived();
}

void cluster_wait(SourceLocation here) {
  meet("cluster_wait", here);
  if (barrier.of_thread.empty() || !barrier.of_thread[size_t(self().slot)].arrived)
    fail(here, "cluster_wait: the thread has not arrived");
  auto& mine = barrier.of_thread[size_t(self().slot)];
  if (mine.phase == barrier.phase) {
    barrier.waiting.insert(self().slot);
    Scheduler::instance().suspend("cluster_wait", here, nullptr);
  }
  mine.arrived = 0;
  race_cluster_barrier_leaves();
}

void mbarrier_arrive_cluster(uint64_t* barrier, int rank, SourceLocation here) {
  constexpr const char* kWhat = "mbarrier_arrive_cluster";
  auto* const there = static_cast<uint64_t*>(in_cluster(kWhat, barrier, rank, here));
  note_release(there);
  mbarrier_arrive_landed(kWhat, there, here);
}

void* in_cluster(const char* what, void* shared, int rank, SourceLocation here) {
  needs(90, what, here);
  const Block& mine = block();
  if (rank < 0 || rank >= mine.cluster_blocks)
    fail(here, "%s: rank %d, the cluster has %d block%s", what, rank, mine.cluster_blocks,
         mine.cluster_blocks == 1 ? "" : "s");
  if (!is_shared(shared) || &owner(shared) != &mine)
    fail(here, "%s: %p is not in the block's own shared memory", what, shared);
  const Block& target = block_of_cluster(rank);
  if (target.ended())
    fail(here, "race: %s reaches block (%u,%u,%u), of rank %d, which has ended", what,
         target.index.x, target.index.y, target.index.z, rank);
  note_remote(target);
  return target.arena + shared_address(shared);
}

}  // namespace assay::simt
