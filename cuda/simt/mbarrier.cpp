// mbarriers. The 8 bytes are opaque on a GPU; here they are a `State`, also in shared memory, so
// that a barrier that was overwritten or never initialised is found.
//
// Phases: PTX ISA, "Phase completion of the mbarrier object": a phase is complete when no arrival
// is pending and the transaction count is zero; then the expected arrivals are pending again and
// the phase number grows by one.
#include "cuda/simt/mbarrier.h"

#include <bit>
#include <unordered_map>

#include "cuda/simt/async.h"
#include "cuda/simt/block.h"

namespace assay::simt {

namespace {

constexpr uint64_t kMagic = 0xB5;
constexpr int kMaxArrivals = (1 << 12) - 1;         // PTX: 2^20 - 1; a block has 1024 threads
constexpr int64_t kMaxTransaction = (1 << 20) - 1;  // PTX ISA, "tx-count"

struct State {
  uint64_t expected : 13;
  uint64_t pending : 13;
  uint64_t phase : 8;
  int64_t bytes : 22;  // still to come; < 0 if copies landed before they were expected
  uint64_t magic : 8;
};
static_assert(sizeof(State) == sizeof(uint64_t));

// Uses of a barrier that its State does not count.
struct Barriers : Extension {
  struct Use {
    int waiting = 0;
    int copies = 0;
    SourceLocation last_copy = {};
  };
  std::unordered_map<const uint64_t*, Use> use;
};

Barriers::Use& use_of(const uint64_t* barrier) {
  return owner(barrier).extension<Barriers>().use[barrier];
}

bool valid(const uint64_t* barrier) {
  return std::bit_cast<State>(*barrier).magic == kMagic;
}

State load(const char* what, const uint64_t* barrier, SourceLocation here) {
  check_shared(what, here, barrier, sizeof(*barrier), alignof(uint64_t));
  const State s = std::bit_cast<State>(*barrier);
  if (s.magic != kMagic) {
    fail(here, "%s: no mbarrier at shared+%u: not initialised, or overwritten", what,
         shared_address(barrier));
  }
  return s;
}

void store(const char* what, uint64_t* barrier, State s, SourceLocation here) {
  if (s.pending == 0 && s.bytes < 0) {
    fail(here, "%s: mbarrier shared+%u: %ld bytes more have landed than were expected", what,
         shared_address(barrier), -long(s.bytes));
  }
  const bool complete = s.pending == 0 && s.bytes == 0;
  if (complete) {
    s.pending = s.expected;
    ++s.phase;
  }
  *barrier = std::bit_cast<uint64_t>(s);
  if (complete) notify();
}

void count_arrival(const char* what, const uint64_t* barrier, State& s, SourceLocation here) {
  if (s.pending == 0) {
    fail(here, "%s: mbarrier shared+%u: more arrivals in a phase than the %d of mbarrier_init",
         what, shared_address(barrier), int(s.expected));
  }
  --s.pending;
}

}  // namespace

void mbarrier_init(uint64_t* barrier, int arrivals, SourceLocation here) {
  needs(90, "an mbarrier", here);
  check_shared("mbarrier_init", here, barrier, sizeof(*barrier), alignof(uint64_t));
  if (arrivals < 1 || arrivals > kMaxArrivals) {
    fail(here, "mbarrier_init: %d arrivals, must be 1 to %d", arrivals, kMaxArrivals);
  }
  if (valid(barrier)) {
    const State old = std::bit_cast<State>(*barrier);
    const Barriers::Use& use = use_of(barrier);
    if (old.pending != old.expected || old.bytes != 0 || use.waiting > 0 || use.copies > 0) {
      fail(here,
           "mbarrier_init: mbarrier shared+%u is in use: %d of %d arrivals and %ld bytes pending, "
           "%d threads wait, %d copies in flight",
           shared_address(barrier), int(old.pending), int(old.expected), long(old.bytes),
           use.waiting, use.copies);
    }
  }
  note_write(barrier, sizeof(*barrier), here);
  State s = {};
  s.expected = uint64_t(arrivals);
  s.pending = uint64_t(arrivals);
  s.magic = kMagic;
  *barrier = std::bit_cast<uint64_t>(s);
}

void mbarrier_arrive(uint64_t* barrier, SourceLocation here) {
  State s = load("mbarrier_arrive", barrier, here);
  note_release(barrier);
  count_arrival("mbarrier_arrive", barrier, s, here);
  store("mbarrier_arrive", barrier, s, here);
}

void mbarrier_arrive_landed(const char* what, uint64_t* barrier, SourceLocation here) {
  State s = load(what, barrier, here);
  count_arrival(what, barrier, s, here);
  store(what, barrier, s, here);
}

void mbarrier_arrive_expect(uint64_t* barrier, int bytes, SourceLocation here) {
  State s = load("mbarrier_arrive_expect", barrier, here);
  if (bytes < 0 || s.bytes + bytes > kMaxTransaction) {
    fail(here, "mbarrier_arrive_expect: %d bytes on top of %ld; at most %ld", bytes, long(s.bytes),
         long(kMaxTransaction));
  }
  note_release(barrier);
  s.bytes += bytes;
  count_arrival("mbarrier_arrive_expect", barrier, s, here);
  store("mbarrier_arrive_expect", barrier, s, here);
}

void mbarrier_wait(uint64_t* barrier, uint32_t parity, SourceLocation here) {
  if (parity > 1) fail(here, "mbarrier_wait: parity %u, must be 0 or 1", parity);
  load("mbarrier_wait", barrier, here);
  const auto done = [=] {
    return !valid(barrier) || (std::bit_cast<State>(*barrier).phase & 1) != parity;
  };
  if (!done()) {
    ++use_of(barrier).waiting;
    wait_until("mbarrier_wait", here, barrier, done);
    --use_of(barrier).waiting;
    load("mbarrier_wait", barrier, here);
  }
  note_acquire(barrier);
}

uint32_t mbarrier_copy_begins(const char* what, uint64_t* barrier, SourceLocation here) {
  const State s = load(what, barrier, here);
  note_release(barrier);
  Barriers::Use& use = use_of(barrier);
  ++use.copies;
  use.last_copy = here;
  return uint32_t(s.phase);
}

void require_no_copies(Block& block) {
  for (const auto& [barrier, use] : block.extension<Barriers>().use)
    if (use.copies > 0)
      fail(use.last_copy, "block (%u,%u,%u) ends while this copy to its shared memory is in flight",
           block.index.x, block.index.y, block.index.z);
}

void mbarrier_copy_ends(const char* what, uint64_t* barrier, uint32_t phase, int64_t bytes,
                        SourceLocation here) {
  --use_of(barrier).copies;
  State s = load(what, barrier, here);
  if (s.phase != phase) {
    fail(here,
         "%s: its %ld bytes land on mbarrier shared+%u after the phase they were issued in has "
         "ended: fewer bytes were expected than are copied",
         what, long(bytes), shared_address(barrier));
  }
  if (s.bytes - bytes < -kMaxTransaction) {
    fail(here, "%s: mbarrier shared+%u: transaction count out of range", what,
         shared_address(barrier));
  }
  s.bytes -= bytes;
  store(what, barrier, s, here);
}

}  // namespace assay::simt
