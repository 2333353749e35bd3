// The race detector: vector clocks of a block's threads, and the last accesses to each two bytes of
// shared and device memory. The method is FastTrack (Flanagan, Freund 2009), but remembers two
// readers.
#include "cuda/simt/race.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "cuda/simt/memory_internal.h"
#include "cuda/simt/race_internal.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

using Clock = uint32_t;

// block serial : 31, atomic : 1, thread : 10, clock : 22
struct Event {
  uint64_t bits = 0;

  static Event of(uint64_t block, int thread, Clock clock, uint64_t atomic) {
    return {block << 33 | atomic << 32 | uint64_t(thread) << 22 | clock};
  }
  uint64_t block() const { return bits >> 33; }
  int atomic() const { return int(bits >> 32 & 1); }
  int thread() const { return int(bits >> 22 & 1023); }
  Clock clock() const { return Clock(bits & ((1u << 22) - 1)); }
};

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
  std::array<Clock, kMaxThreads> known;
  std::array<Clock, kMaxThreads> fenced;  // the part of `known` before a fence_proxy_async
};

// The clocks that a release leaves for an acquire.
struct Released {
  std::vector<Clock> known, fenced;
};

struct Detector {
  Cell* shared = reserve_cells(kArenaBytes);
  Cell* device = reserve_cells(kRegionBytes);

  const std::byte* arena = nullptr;
  DeviceRegion region{};
  uint64_t first_block = 0;  // first one of this grid
  uint64_t block = 0;
  int threads = 0;
  uint64_t barriers = 0;                    // block barriers so far, over all blocks
  std::array<Clock, kMaxThreads> clock{};   // per thread, from 1
  std::array<Clock, kMaxThreads> common{};  // known to all threads since the last block barrier
  std::array<Clock, kMaxThreads> common_fenced{};
  std::vector<Row> row = std::vector<Row>(kMaxThreads);
  std::unordered_map<const void*, Released> released;
  Released named[16];
  Released warp;  // scratch of race_warp_barrier

  // Order between blocks: an atomic after a fence_device releases, one on its address acquires.
  std::array<uint8_t, kMaxThreads> fenced{};
  std::unordered_map<const void*, std::unordered_set<uint64_t>> blocks_released;
  std::unordered_set<uint64_t> blocks_known;
};

Detector* the_one = nullptr;  // made by the first grid
Detector& detector() {
  return *the_one;
}

// Thread t's row, up to date with the last block barrier.
Row& row_of(Detector& d, int t) {
  Row& row = d.row[size_t(t)];
  if (row.barrier != d.barriers) {
    row.barrier = d.barriers;
    std::copy_n(d.common.begin(), d.threads, row.known.begin());
    std::copy_n(d.common_fenced.begin(), d.threads, row.fenced.begin());
  }
  return row;
}

Clock known(const Detector& d, int t, int other) {
  if (t == other) return d.clock[size_t(t)];
  const Row& row = d.row[size_t(t)];
  return row.barrier == d.barriers ? row.known[size_t(other)] : d.common[size_t(other)];
}

void join(std::vector<Clock>& into, const std::array<Clock, kMaxThreads>& from, int threads) {
  into.resize(size_t(threads));
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void release(Detector& d, int t, Released& to) {
  const Row& row = row_of(d, t);
  join(to.known, row.known, d.threads);
  join(to.fenced, row.fenced, d.threads);
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
  const uint64_t block = event.block();
  if (block < since) return 1;
  if (block != d.block) return d.blocks_known.contains(block);
  return known(d, t, event.thread()) >= event.clock();
}

std::string who(Event e) {
  return strprintf("%sby thread %d of %s", e.atomic() ? "atomically " : "", e.thread(),
                   e.block() == detector().block ? "the block" : "another block");
}

[[noreturn]] void report(const char* now, Place here, const char* then, Event event, Place there,
                         const void* p) {
  const Block& b = block();
  const Thread& t = self();
  const std::string where =
      is_shared(p) ? strprintf("shared+%u", shared_address(p)) : describe_address(p);
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
  cell.write = Event::of(d.block, t, d.clock[size_t(t)], atomic);
  cell.write_place = place;
  cell.read[0] = cell.read[1] = {};
}

void check_read(Detector& d, Cell& cell, int t, Where where, Place place) {
  if (!before(d, cell.write, t, where.since))
    report("reads", place, "written", cell.write, cell.write_place, where.p);
  const Event now = Event::of(d.block, t, d.clock[size_t(t)], 0);
  if (cell.read[1].bits == now.bits) return;
  // Of unordered readers, the first and another one are kept, if possible of another warp.
  if (before(d, cell.read[0], t, where.since)) {
    cell.read[0] = now;
    cell.read_place[0] = place;
  } else if (before(d, cell.read[1], t, where.since) ||
             cell.read[1].thread() / kWarpLanes == cell.read[0].thread() / kWarpLanes) {
    cell.read[1] = now;
    cell.read_place[1] = place;
  }
}

// TMA and wgmma see a thread's write only after a fence_proxy_async, by the writer or by a thread
// that is ordered after the write.
void check_fenced(Detector& d, const Cell& cell, int t, Where where, Place place) {
  const Event w = cell.write;
  if (w.block() != d.block || cell.write_place == kAsyncPlace) return;
  if (row_of(d, t).fenced[size_t(w.thread())] >= w.clock()) return;
  report("reads asynchronously, without a fence_proxy_async since it was written,", place,
         "written", w, cell.write_place, where.p);
}

void access(const void* p, size_t bytes, Access kind, Place place) {
  if (detail::running == nullptr || bytes < kCellBytes) return;
  Detector& d = detector();
  Where where = {static_cast<const std::byte*>(p), d.block};
  Cell* cells = nullptr;
  if (const size_t at = size_t(where.p - d.arena); at < kArenaBytes) {
    cells = d.shared + at / kCellBytes;
  } else if (const size_t at = size_t(where.p - d.region.begin); at < d.region.bytes) {
    cells = d.device + at / kCellBytes;
    where.since = d.first_block;
  } else {
    return;  // a local variable, or host memory
  }
  const int t = self().index;
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

void race_block_begins(uint64_t block, int threads) {
  Detector& d = detector();
  d.block = block;
  d.threads = threads;
  d.arena = simt::block().arena;
  ++d.barriers;
  d.clock.fill(1);
  d.common.fill(0);
  d.fenced.fill(0);
  d.common_fenced.fill(0);
  for (Released& named : d.named) clear(named);
  d.released.clear();
  d.blocks_known.clear();
}

void race_block_barrier() {
  Detector& d = detector();
  const size_t threads = size_t(d.threads);
  for (size_t t = 0; t < threads; ++t)
    if (d.row[t].barrier == d.barriers)
      for (size_t i = 0; i < threads; ++i)
        d.common_fenced[i] = std::max(d.common_fenced[i], d.row[t].fenced[i]);
  ++d.barriers;
  for (size_t t = 0; t < threads; ++t) d.common[t] = d.clock[t]++;
}

void race_warp_barrier(int warp, uint32_t lanes) {
  Detector& d = detector();
  clear(d.warp);
  for (uint32_t left = lanes; left != 0; left &= left - 1)
    release(d, warp * kWarpLanes + std::countr_zero(left), d.warp);
  for (uint32_t left = lanes; left != 0; left &= left - 1)
    acquire(d, warp * kWarpLanes + std::countr_zero(left), d.warp);
}

void race_named_barrier_arrives(int id) {
  Detector& d = detector();
  release(d, self().index, d.named[id]);
}

void race_named_barrier_completes(int id, const ThreadSet& waiting, int last) {
  Detector& d = detector();
  for (ThreadSet left = waiting; !left.empty();) {
    const int t = left.lowest();
    left.remove(t);
    acquire(d, t, d.named[id]);
  }
  if (last >= 0) acquire(d, last, d.named[id]);
  clear(d.named[id]);
}

void race_atomic(const void* p, size_t bytes, SourceLocation here) {
  if (detail::running == nullptr) return;
  Detector& d = detector();
  auto& released = d.blocks_released[p];
  d.blocks_known.insert(released.begin(), released.end());
  if (d.fenced[size_t(self().index)]) released.insert(d.block);
  access(p, bytes, Access::kAtomic, place_of(here));
}

// Checked like an atomic write, so that an unordered plain access is a race; it orders nothing.
void race_atomic_load(const void* p, size_t bytes, SourceLocation here) {
  access(p, bytes, Access::kAtomic, place_of(here));
}

void race_fence_device() {
  detector().fenced[size_t(self().index)] = 1;
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
  release(d, self().index, d.released[object]);
}

void note_acquire(const void* object) {
  Detector& d = detector();
  const auto found = d.released.find(object);
  if (found != d.released.end()) acquire(d, self().index, found->second);
}

void note_proxy_fence() {
  Detector& d = detector();
  const size_t t = size_t(self().index);
  Row& row = row_of(d, int(t));
  row.fenced = row.known;
  row.fenced[t] = d.clock[t]++;
}

}  // namespace assay::simt
