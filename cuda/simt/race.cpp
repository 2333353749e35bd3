// The race detector: vector clocks of the threads that run together, those of a block or a cluster,
// and the last accesses to each two bytes of shared and device memory. The method is FastTrack
// (Flanagan, Freund 2009), but remembers two readers.
#include "cuda/simt/race.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda/simt/memory_internal.h"
#include "cuda/simt/race_internal.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

using Clock = uint32_t;

// Serial number of the cluster's first block : 30, atomic : 1, slot of the thread : 11, clock : 22.
struct Event {
  uint64_t bits = 0;

  static Event of(uint64_t cluster, int slot, Clock clock, uint64_t atomic) {
    return {cluster << 34 | atomic << 33 | uint64_t(slot) << 22 | clock};
  }
  uint64_t cluster() const { return bits >> 34; }
  int atomic() const { return int(bits >> 33 & 1); }
  int slot() const { return int(bits >> 22 & 2047); }
  Clock clock() const { return Clock(bits & ((1u << 22) - 1)); }
};
static_assert(kMaxClusterThreads == 2048);

struct Cell {
  Event write;
  Event read[2];
  Place write_place, read_place[2];
};
constexpr size_t kCellBytes = 2;  // of memory

Cell* reserve_cells(size_t bytes) {
  const size_t size = bytes / kCellBytes * sizeof(Cell);
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  CHECK(p != MAP_FAILED, "cannot reserve addresses for %zu bytes of the race detector", size);
  return static_cast<Cell*>(p);
}

constexpr size_t kRegionBytes = size_t{1} << 40;  // as in cuda/simt/memory.cpp

// A thread's vector clock: the events of the other threads that happen before its next one.
struct Row {
  uint64_t barrier = 0;  // the clocks are out of date if this is not the latest block barrier
  std::array<Clock, kMaxClusterThreads> known;
  std::array<Clock, kMaxClusterThreads> fenced;  // the part of `known` before a fence_proxy_async
};

// The clocks that a release leaves for an acquire.
struct Released {
  std::vector<Clock> known, fenced;
};

// What a block has by itself.
struct OfBlock {
  uint64_t barriers = 0;  // number of its last block barrier, over all blocks
  std::array<Clock, kMaxClusterThreads> common{};  // known to its threads since the last of them
  std::array<Clock, kMaxClusterThreads> common_fenced{};
  Released named[16];
  std::unordered_map<int, Clock> remote;  // by slot: its last write or arrival from another block
};

struct Detector {
  Cell* shared = reserve_cells(kArenaBytes * kMaxClusterBlocks);
  Cell* device = reserve_cells(kRegionBytes);

  const std::byte* arena = nullptr;  // of the cluster's first block
  size_t arena_bytes = 0;            // of all of them
  DeviceRegion region{};
  uint64_t first_block = 0;                       // first one of this grid
  uint64_t cluster = 0;                           // serial number of its first block
  int blocks = 1;                                 // of the cluster
  int slots = 0;                                  // of its threads
  int stride = 0;                                 // slots of a block
  std::array<Clock, kMaxClusterThreads> clock{};  // per thread, from 1
  std::vector<Row> row = std::vector<Row>(kMaxClusterThreads);
  uint64_t last_barrier = 0;  // number of block barriers so far
  OfBlock of_block[kMaxClusterBlocks];
  std::unordered_map<const void*, Released> released;
  Released warp;                                  // scratch of race_warp_barrier
  Released cluster_barrier, cluster_barrier_was;  // of its phase, and of the last one

  // Order between clusters: an atomic after a fence_device releases, one on its address acquires.
  std::array<uint8_t, kMaxClusterThreads> fenced{};
  std::unordered_map<const void*, std::unordered_set<uint64_t>> blocks_released;
  std::unordered_set<uint64_t> blocks_known;
};

Detector* the_one = nullptr;  // made by the first grid
Detector& detector() {
  return *the_one;
}

const OfBlock& block_of(const Detector& d, int t) {
  return d.of_block[d.blocks == 1 ? 0 : t / d.stride];
}

// Thread t's row, up to date with the last block barrier.
Row& row_of(Detector& d, int t) {
  Row& row = d.row[size_t(t)];
  const OfBlock& b = block_of(d, t);
  if (row.barrier != b.barriers) {
    row.barrier = b.barriers;
    std::copy_n(b.common.begin(), d.slots, row.known.begin());
    std::copy_n(b.common_fenced.begin(), d.slots, row.fenced.begin());
  }
  return row;
}

Clock known(const Detector& d, int t, int other) {
  if (t == other) return d.clock[size_t(t)];
  const Row& row = d.row[size_t(t)];
  const OfBlock& b = block_of(d, t);
  return row.barrier == b.barriers ? row.known[size_t(other)] : b.common[size_t(other)];
}

void join(std::vector<Clock>& into, const std::array<Clock, kMaxClusterThreads>& from, int slots) {
  into.resize(size_t(slots));
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void release(Detector& d, int t, Released& to) {
  const Row& row = row_of(d, t);
  join(to.known, row.known, d.slots);
  join(to.fenced, row.fenced, d.slots);
  Clock& mine = d.clock[size_t(t)];
  to.known[size_t(t)] = std::max(to.known[size_t(t)], mine++);
}

void acquire(Detector& d, int t, const Released& from) {
  Row& row = row_of(d, t);
  for (size_t i = 0; i < from.known.size(); ++i) {
    row.known[i] = std::max(row.known[i], from.known[i]);
    row.fenced[i] = std::max(row.fenced[i], from.fenced[i]);
  }
}

void clear(Released& r) {
  r.known.clear();
  r.fenced.clear();
}

// True if `event` happens before what thread t does now. Events of blocks before `since` always do.
int before(const Detector& d, Event event, int t, uint64_t since) {
  const uint64_t cluster = event.cluster();
  if (cluster < since) return 1;
  if (cluster != d.cluster) return d.blocks_known.contains(cluster);
  return known(d, t, event.slot()) >= event.clock();
}

std::string who(Event e) {
  const Detector& d = detector();
  const int rank = d.blocks == 1 ? 0 : e.slot() / d.stride;
  const int same = e.cluster() == d.cluster && rank == block().rank;
  return strprintf("%sby thread %d of %s", e.atomic() ? "atomically " : "",
                   e.slot() - rank * d.stride, same ? "the block" : "another block");
}

[[noreturn]] void report(const char* now, Place here, const char* then, Event event, Place there,
                         const void* p) {
  const Block& b = block();
  const Thread& t = self();
  const std::string where = !is_shared(p) ? describe_address(p)
                                          : strprintf("shared+%u%s", shared_address(p),
                                                      &owner(p) == &b ? "" : " of another block");
  std::string text =
      strprintf("%s: race: block (%u,%u,%u), thread %d (%u,%u,%u) %s %s at %s; ", b.kernel,
                b.index.x, b.index.y, b.index.z, t.index, t.position.x, t.position.y, t.position.z,
                now, where.c_str(), describe_place(here).c_str());
  text += strprintf("%s %s at %s, and nothing orders the two", then, who(event).c_str(),
                    describe_place(there).c_str());
  Scheduler::instance().leave_kernel(std::make_exception_ptr(KernelError(text)));
}

// The memory of a cell, and the first block whose events count: shared memory is new for each
// block, and kernels run one after another.
struct Where {
  const std::byte* p;
  uint64_t since;
};

void check_write(Detector& d, Cell& cell, int t, Where where, Place place, uint64_t atomic) {
  const char* const now = atomic ? "changes atomically" : "writes";
  if (!(atomic && cell.write.atomic()) && !before(d, cell.write, t, where.since))
    report(now, place, "written", cell.write, cell.write_place, where.p);
  for (int i = 0; i < 2; ++i)
    if (!before(d, cell.read[i], t, where.since))
      report(now, place, "read", cell.read[i], cell.read_place[i], where.p);
  cell.write = Event::of(d.cluster, t, d.clock[size_t(t)], atomic);
  cell.write_place = place;
  cell.read[0] = cell.read[1] = {};
}

void check_read(Detector& d, Cell& cell, int t, Where where, Place place) {
  if (!before(d, cell.write, t, where.since))
    report("reads", place, "written", cell.write, cell.write_place, where.p);
  const Event now = Event::of(d.cluster, t, d.clock[size_t(t)], 0);
  if (cell.read[1].bits == now.bits) return;
  // Of unordered readers, the first and another one are kept, if possible of another warp.
  if (before(d, cell.read[0], t, where.since)) {
    cell.read[0] = now;
    cell.read_place[0] = place;
  } else if (before(d, cell.read[1], t, where.since) ||
             cell.read[1].slot() / kWarpLanes == cell.read[0].slot() / kWarpLanes) {
    cell.read[1] = now;
    cell.read_place[1] = place;
  }
}

// TMA and wgmma see a thread's write only after a fence_proxy_async, by the writer or by a thread
// that is ordered after the write.
void check_fenced(Detector& d, const Cell& cell, int t, Where where, Place place) {
  const Event w = cell.write;
  if (w.cluster() != d.cluster || cell.write_place == kAsyncPlace) return;
  if (row_of(d, t).fenced[size_t(w.slot())] >= w.clock()) return;
  report("reads asynchronously, without a fence_proxy_async since it was written,", place,
         "written", w, cell.write_place, where.p);
}

void access(const void* p, size_t bytes, Access kind, Place place) {
  if (detail::running == nullptr || bytes < kCellBytes) return;
  Detector& d = detector();
  Where where = {static_cast<const std::byte*>(p), d.cluster};
  Cell* cells = nullptr;
  if (const size_t at = size_t(where.p - d.arena); at < d.arena_bytes) {
    cells = d.shared + at / kCellBytes;
  } else if (const size_t at = size_t(where.p - d.region.begin); at < d.region.bytes) {
    cells = d.device + at / kCellBytes;
    where.since = d.first_block;
  } else {
    return;  // a local variable, or host memory
  }
  const int t = self().slot;
  for (size_t i = 0; i < bytes / kCellBytes; ++i, where.p += kCellBytes) {
    Cell& cell = cells[i];
    if (kind == Access::kAsyncRead) check_fenced(d, cell, t, where, place);
    if (kind == Access::kRead || kind == Access::kAsyncRead) {
      check_read(d, cell, t, where, place);
    } else {
      check_write(d, cell, t, where, place, kind == Access::kAtomic);
    }
    if (kind == Access::kAsyncWrite) cell.write_place = kAsyncPlace;
  }
}

}  // namespace

void race_access(const void* p, size_t bytes, Access kind, Place place) {
  access(p, bytes, kind, place);
}

bool race_detector_present() {
  return true;
}

void race_grid_begins(uint64_t first_block) {
  if (the_one == nullptr) the_one = new Detector;  // lives as long as the process
  Detector& d = detector();
  d.region = device_region();
  d.first_block = first_block;
  d.blocks_released.clear();
}

void race_cluster_begins(int blocks) {
  Detector& d = detector();
  const Block& first = block_of_cluster(0);
  d.cluster = first.serial;
  d.blocks = blocks;
  d.stride = blocks == 1 ? first.threads : block_of_cluster(1).first_slot;
  d.slots = (blocks - 1) * d.stride + first.threads;
  d.arena = first.arena;
  d.arena_bytes = size_t(blocks) * kArenaBytes;
  d.clock.fill(1);
  d.fenced.fill(0);
  for (int rank = 0; rank < blocks; ++rank) {
    OfBlock& b = d.of_block[rank];
    b.barriers = ++d.last_barrier;
    b.common.fill(0);
    b.common_fenced.fill(0);
    for (Released& named : b.named) clear(named);
    b.remote.clear();
  }
  clear(d.cluster_barrier);
  clear(d.cluster_barrier_was);
  d.released.clear();
  d.blocks_known.clear();
}

// The last access from another block must be known to some thread of this one: else the block could
// have ended before it.
void race_block_ends(const Block& block) {
  const Detector& d = detector();
  for (const auto& [slot, clock] : d.of_block[block.rank].remote) {
    Clock most = 0;
    for (int t = 0; t < block.threads; ++t)
      most = std::max(most, known(d, block.first_slot + t, slot));
    if (most >= clock) continue;
    const Block& other = block_of_cluster(slot / d.stride);
    const std::string text = strprintf(
        "%s: race: block (%u,%u,%u) ends, and nothing orders this after the last access to its "
        "shared memory by thread %d of block (%u,%u,%u)",
        block.kernel, block.index.x, block.index.y, block.index.z, slot - other.first_slot,
        other.index.x, other.index.y, other.index.z);
    Scheduler::instance().leave_kernel(std::make_exception_ptr(KernelError(text)));
  }
}

void race_block_barrier(const Block& block) {
  Detector& d = detector();
  OfBlock& b = d.of_block[block.rank];
  const size_t first = size_t(block.first_slot), end = first + size_t(block.threads);
  for (size_t t = first; t < end; ++t) {
    const Row& row = d.row[t];
    if (row.barrier != b.barriers) continue;
    for (size_t i = 0; i < size_t(d.slots); ++i)
      b.common_fenced[i] = std::max(b.common_fenced[i], row.fenced[i]);
    if (d.blocks == 1) continue;
    for (size_t i = 0; i < size_t(d.slots); ++i) b.common[i] = std::max(b.common[i], row.known[i]);
  }
  b.barriers = ++d.last_barrier;
  for (size_t t = first; t < end; ++t) b.common[t] = d.clock[t]++;
}

void race_warp_barrier(int first_lane, uint32_t lanes) {
  Detector& d = detector();
  clear(d.warp);
  for (uint32_t left = lanes; left != 0; left &= left - 1)
    release(d, first_lane + std::countr_zero(left), d.warp);
  for (uint32_t left = lanes; left != 0; left &= left - 1)
    acquire(d, first_lane + std::countr_zero(left), d.warp);
}

void race_named_barrier_arrives(int id) {
  Detector& d = detector();
  release(d, self().slot, d.of_block[self().block->rank].named[id]);
}

void race_named_barrier_completes(int id, const ThreadSet& waiting, int last) {
  Detector& d = detector();
  Released& named = d.of_block[self().block->rank].named[id];
  for (ThreadSet left = waiting; !left.empty();) {
    const int t = left.lowest();
    left.remove(t);
    acquire(d, t, named);
  }
  if (last >= 0) acquire(d, last, named);
  clear(named);
}

void race_cluster_barrier_arrives() {
  Detector& d = detector();
  release(d, self().slot, d.cluster_barrier);
}

void race_cluster_barrier_completes() {
  Detector& d = detector();
  d.cluster_barrier_was = std::exchange(d.cluster_barrier, {});
}

void race_cluster_barrier_leaves() {
  Detector& d = detector();
  acquire(d, self().slot, d.cluster_barrier_was);
}

void race_atomic(const void* p, size_t bytes, SourceLocation here) {
  if (detail::running == nullptr) return;
  Detector& d = detector();
  auto& released = d.blocks_released[p];
  d.blocks_known.insert(released.begin(), released.end());
  if (d.fenced[size_t(self().slot)]) released.insert(d.cluster);
  access(p, bytes, Access::kAtomic, place_of(here));
}

// Checked like an atomic write, so that an unordered plain access is a race; it orders nothing.
void race_atomic_load(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kAtomic, place_of(here));
}

void race_fence_device() {
  detector().fenced[size_t(self().slot)] = 1;
}

void note_read(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kRead, place_of(here));
}
void note_write(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kWrite, place_of(here));
}
void note_async_read(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kAsyncRead, place_of(here));
}
void note_async_write(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kAsyncWrite, place_of(here));
}

void note_release(const void* object) {
  Detector& d = detector();
  release(d, self().slot, d.released[object]);
}

void note_acquire(const void* object) {
  Detector& d = detector();
  const auto found = d.released.find(object);
  if (found != d.released.end()) acquire(d, self().slot, found->second);
}

void note_proxy_fence() {
  Detector& d = detector();
  const size_t t = size_t(self().slot);
  Row& row = row_of(d, int(t));
  row.fenced = row.known;
  row.fenced[t] = d.clock[t]++;
}

void note_remote(const Block& target) {
  Detector& d = detector();
  const int t = self().slot;
  if (target.rank != self().block->rank) d.of_block[target.rank].remote[t] = d.clock[size_t(t)];
}

}  // namespace assay::simt
