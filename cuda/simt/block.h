// The inside of the executor: what wrappers for kernels (device.h, async.h, tma.h, mma.h, wgmma.h)
// are built from.
//
// Threads of a block are fibers of one OS thread; a fiber runs until it waits. So the code here
// needs no locks, and everything between two waits is atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/simt/fiber.h"
#include "cuda/simt/language.h"
#include "cuda/simt/source_location.h"

namespace assay::simt {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / kWarpLanes;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr size_t kMaxSharedBytes = 227 << 10;
inline constexpr size_t kArenaBytes = 256 << 10;

// What a thread waits for, for reports. `object`: an address in shared memory, or null.
struct Wait {
  const char* what = nullptr;
  SourceLocation here;
  const void* object = nullptr;
};

struct Thread {
  int index = 0;  // in the block; lane, warp, warpgroup follow from it
  int lane = 0;
  int warp = 0;
  int warpgroup = 0;
  uint3 position;

  enum class State : uint8_t { kNew, kStarted, kExited };
  State state = State::kNew;
  Fiber fiber;                     // while it does not run
  Wait wait;                       // what it waits for, or waited for last
  bool (*ready)(void*) = nullptr;  // wait_until's predicate
  void* ready_context = nullptr;
};

// State that a wrapper keeps for the length of a block: block().extension<MyState>(), made at the
// first use.
struct Extension {
  virtual ~Extension() = default;
  // All threads have exited and all landings are done. May fail().
  virtual void block_ends() {}
};

// The block that runs.
struct Block {
  const char* kernel = "";
  uint64_t serial = 0;  // of all blocks of the process, from 1
  uint3 index;
  int threads = 0;
  int exited = 0;
  std::byte* arena =
      nullptr;  // kArenaBytes, aligned to 4096: dynamic shared memory, then GPU_SHARED arrays
  size_t dynamic_bytes = 0;

  template <typename T>
  T& extension() {
    static const size_t id = new_extension_id();
    if (id >= extensions.size()) extensions.resize(id + 1);
    if (!extensions[id]) extensions[id] = std::make_unique<T>();
    return static_cast<T&>(*extensions[id]);
  }

  std::vector<std::unique_ptr<Extension>> extensions;

 private:
  static size_t new_extension_id();
};

namespace detail {
extern constinit Thread* running;
}
// Only inside a kernel.
inline Thread& self() {
  return *detail::running;
}
Thread& thread(int index);
Block& block();

// Ends the kernel: run_grid throws KernelError, whose text names kernel, block, thread, file:line
// and the message.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(SourceLocation here, const char* format, ...);

// The lanes of `mask` that have not exited meet; the last one calls compute (null: only meet) for
// all of them, with each lane's `arg` (null for lanes that are not there) and the mask of those
// there. arg may lie on the caller's stack. Lanes that meet on different lines or with different
// `what` are reported.
void warp_collective(const char* what, SourceLocation here, uint32_t mask, void* arg,
                     void (*compute)(void* const (&args)[kWarpLanes], uint32_t mask));

// Returns when ready(context). A waiting thread's predicate is evaluated again some time after
// notify(); it must not wait itself.
void wait_until(const char* what, SourceLocation here, const void* object, bool (*ready)(void*),
                void* context);
template <typename F>
void wait_until(const char* what, SourceLocation here, const void* object, F ready) {
  wait_until(
      what, here, object, [](void* f) -> bool { return (*static_cast<F*>(f))(); }, &ready);
}
// Something changed that a thread in wait_until may wait for.
void notify();

// An effect that comes later. By the schedule it runs at once (early), when no thread can run any
// more (late), or at a random time; at the latest when the block ends. It notifies by itself.
using Ticket = uint64_t;  // 0: it has run already
Ticket defer(std::function<void()> landing);
// Runs it now, unless it has run.
void land(Ticket ticket);

// Shared memory as the hardware names it: bytes from the start of the block's shared memory, 32
// bits.
uint32_t shared_address(const void* p);
bool is_shared(const void* p);
// [p, p + bytes) must lie in one shared array (in the dynamic shared memory, in one device
// allocation), aligned.
void check_shared(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment);
void check_global(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment);

// What a wrapper tells the race detector (race.cpp; otherwise these do nothing). note_read and
// note_write: an access by the calling thread which the compiler does not see. async_read: by TMA
// or wgmma on its behalf; between it and an ordinary write there must be a fence_proxy_async, by
// the writer or by any thread on the way of synchronisation from there to here (PTX ISA, "Causality
// order": a proxy fence along the path). async_write: counts as the calling thread's write at the
// time of issue, and needs no such fence before an async_read.
// release / acquire: what this thread did before release(object) happens before what follows
// acquire(object).
void note_read(const void* p, size_t bytes, SourceLocation here);
void note_write(const void* p, size_t bytes, SourceLocation here);
void note_async_read(const void* p, size_t bytes, SourceLocation here);
void note_async_write(const void* p, size_t bytes, SourceLocation here);
void note_release(const void* object);
void note_acquire(const void* object);
void note_proxy_fence();

}  // namespace assay::simt
