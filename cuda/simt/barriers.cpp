// Where threads wait for each other: lanes of a warp, the block, named barriers.
#include "cuda/simt/race.h"
#include "cuda/simt/scheduler.h"
#include "cuda/simt/threads.h"

namespace assay::simt {
namespace {

bool same_place(SourceLocation a, SourceLocation b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

using Compute = void (*)(void* const (&args)[kWarpLanes], uint32_t mask);

// The lanes of a warp that name the same mask.
struct WarpRendezvous {
  uint32_t mask = 0;
  uint32_t arrived = 0;  // 0: not in use
  const char* what = nullptr;
  SourceLocation here;
  Compute compute = nullptr;
  void* args[kWarpLanes] = {};
};

struct Warp {
  uint32_t alive = 0;
  uint32_t in_use = 0;         // bit i: meeting[i]
  WarpRendezvous meeting[32];  // each lane may name another mask
};

struct BlockBarrier {
  int arrived = 0;
  SourceLocation here;
  ThreadSet waiting;
};

constexpr int kNamedBarriers = 16;
struct NamedBarrier {
  int arrived = 0;
  int expected = 0;
  SourceLocation here;
  ThreadSet waiting;
};

struct BlockRendezvous {
  int threads = 0;
  Warp warp[kMaxWarps];
  BlockBarrier barrier;
  NamedBarrier named[kNamedBarriers];
};
BlockRendezvous of_rank[kMaxClusterBlocks];

BlockRendezvous& mine() {
  return of_rank[self().block->rank];
}

Scheduler& scheduler() {
  return Scheduler::instance();
}

// All lanes of the running thread's warp have arrived: computes, and makes them ready.
void complete(Warp& warp, int slot) {
  const Thread& t = self();
  WarpRendezvous& m = warp.meeting[slot];
  const uint32_t present = m.arrived;
  warp.in_use &= ~(1u << slot);
  m.arrived = 0;
  if (m.compute) {
    m.compute(m.args, present);
  } else {
    race_warp_barrier(t.slot - t.lane, present);
  }
  scheduler().make_ready(t.slot / kWarpLanes, present & ~(1u << t.lane));
}

int find_rendezvous(Warp& warp, uint32_t mask) {
  for (uint32_t left = warp.in_use; left != 0; left &= left - 1) {
    const int slot = std::countr_zero(left);
    if (warp.meeting[slot].mask == mask) return slot;
  }
  return -1;
}

void release_block_barrier() {
  BlockBarrier& b = mine().barrier;
  b.arrived = 0;
  race_block_barrier(block());
  scheduler().make_ready(b.waiting);
  b.waiting.clear();
}

NamedBarrier& arrive_at_named(const char* what, int id, int threads, SourceLocation here) {
  if (id < 1 || id >= kNamedBarriers) fail(here, "%s: barrier %d, need 1 to 15", what, id);
  if (threads <= 0 || threads % kWarpLanes != 0 || threads > kMaxThreads)
    fail(here, "%s: %d threads, need a multiple of 32 up to 1024", what, threads);
  NamedBarrier& b = mine().named[id];
  if (b.arrived > 0 && b.expected != threads)
    fail(here, "%s: barrier %d is for %d threads here and for %d at %s", what, id, threads,
         b.expected, short_place(b.here).c_str());
  b.expected = threads;
  b.here = here;
  ++b.arrived;
  race_named_barrier_arrives(id);
  return b;
}

// last: the slot of the thread that arrived last, if it waits too, or -1.
bool complete_named(NamedBarrier& b, int last) {
  if (b.arrived < b.expected) return false;
  b.arrived = 0;
  race_named_barrier_completes(int(&b - mine().named), b.waiting, last);
  scheduler().make_ready(b.waiting);
  b.waiting.clear();
  return true;
}

}  // namespace

void rendezvous_begin(const Block& block) {
  BlockRendezvous& all = of_rank[block.rank];
  const int threads = block.threads;
  all.threads = threads;
  for (int w = 0; w * kWarpLanes < threads; ++w) {
    const int lanes = std::min(threads - w * kWarpLanes, kWarpLanes);
    all.warp[w].alive = lanes == kWarpLanes ? ~0u : (1u << lanes) - 1;
    for (uint32_t left = all.warp[w].in_use; left != 0; left &= left - 1)
      all.warp[w].meeting[std::countr_zero(left)].arrived = 0;
    all.warp[w].in_use = 0;
  }
  all.barrier.arrived = 0;
  all.barrier.waiting.clear();
  for (NamedBarrier& b : all.named) {
    if (b.arrived == 0) continue;
    b.arrived = 0;
    b.waiting.clear();
  }
}

// Barriers no longer wait for a thread that has exited.
void rendezvous_thread_exits(Thread& t) {
  BlockRendezvous& all = of_rank[t.block->rank];
  Warp& warp = all.warp[t.warp];
  warp.alive &= ~(1u << t.lane);
  for (uint32_t left = warp.in_use; left != 0; left &= left - 1) {
    const int slot = std::countr_zero(left);
    const WarpRendezvous& m = warp.meeting[slot];
    if (m.arrived == (m.mask & warp.alive)) complete(warp, slot);
  }
  if (all.barrier.arrived > 0 && all.barrier.arrived == all.threads - t.block->exited)
    release_block_barrier();
}

void warp_collective(const char* what, SourceLocation here, uint32_t mask, void* arg,
                     Compute compute) {
  Thread& t = self();
  Warp& warp = mine().warp[t.warp];
  const uint32_t bit = 1u << t.lane;
  if (!(mask & bit)) fail(here, "%s: mask %08x lacks the calling lane %d", what, mask, t.lane);
  int slot = warp.in_use == 0 ? -1 : find_rendezvous(warp, mask);
  if (slot < 0) {
    slot = std::countr_one(warp.in_use);
    warp.in_use |= 1u << slot;
    WarpRendezvous& m = warp.meeting[slot];
    m.mask = mask;
    m.what = what;
    m.here = here;
    m.compute = compute;
    for (void*& a : m.args) a = nullptr;
  }
  WarpRendezvous& m = warp.meeting[slot];
  if (!same_place(m.here, here) || m.what != what)
    fail(here, "divergent: lane %d is at %s, lanes %08x of its warp are at %s, %s", t.lane, what,
         m.arrived, m.what, short_place(m.here).c_str());
  m.arrived |= bit;
  m.args[t.lane] = arg;
  if (m.arrived == (mask & warp.alive)) {
    complete(warp, slot);
  } else {
    scheduler().suspend(what, here, nullptr);
  }
}

void sync_block(SourceLocation here) {
  BlockRendezvous& all = mine();
  BlockBarrier& b = all.barrier;
  Thread& t = self();
  if (b.arrived == 0) {
    b.here = here;
  } else if (!same_place(b.here, here)) {
    fail(here, "divergent: sync_block here, but %d threads of the block are at sync_block, %s",
         b.arrived, short_place(b.here).c_str());
  }
  if (++b.arrived == all.threads - block().exited) {
    release_block_barrier();
  } else {
    b.waiting.insert(t.slot);
    scheduler().suspend("sync_block", here, nullptr);
  }
}

void sync_warp(uint32_t mask, SourceLocation here) {
  warp_collective("sync_warp", here, mask, nullptr, nullptr);
}

void named_barrier_sync(int id, int threads, SourceLocation here) {
  NamedBarrier& b = arrive_at_named("named_barrier_sync", id, threads, here);
  if (complete_named(b, self().slot)) return;
  b.waiting.insert(self().slot);
  scheduler().suspend("named_barrier_sync", here, nullptr);
}

void named_barrier_arrive(int id, int threads, SourceLocation here) {
  complete_named(arrive_at_named("named_barrier_arrive", id, threads, here), -1);
}

}  // namespace assay::simt
