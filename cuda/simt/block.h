// The core of the SIMT emulator, on which the wrappers for kernels (threads.h, async.h, tma.h,
// mma.h, wgmma.h) are built.
//
// The threads of a block are fibers of one OS thread; a fiber runs until it waits. So the code here
// needs no locks, and everything between two waits is atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/gpu_kind.h"
#include "cuda/simt/fiber.h"
#include "cuda/simt/language.h"
#include "cuda/simt/source_location.h"

namespace assay::simt {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / kWarpLanes;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr size_t kArenaBytes = 256 << 10;  // a power of two
inline constexpr int kMaxClusterBlocks = 8;
inline constexpr int kMaxClusterThreads = 2048;  // of all blocks of a cluster, which run together

// What a thread waits for, for reports. `object`: an address in shared memory, or null.
struct Wait {
  const char* what = nullptr;
  SourceLocation here;
  const void* object = nullptr;
};

struct Block;

struct Thread {
  Block* block = nullptr;
  int index = 0;  // in the block; lane and warp follow from it
  int lane = 0;
  int warp = 0;
  int slot = 0;  // in the cluster: a block's first thread is at a multiple of 32
  uint3 position;

  enum class State : uint8_t { kNew, kStarted, kExited };
  State state = State::kNew;
  Fiber fiber;                     // valid while it does not run
  Wait wait;                       // what it waits for, or last waited for
  bool (*ready)(void*) = nullptr;  // wait_until's predicate
  void* ready_context = nullptr;
};

// State that a wrapper keeps per block: block().extension<MyState>() makes it at the first use.
struct Extension {
  virtual ~Extension() = default;
  // Called when all threads have exited and all deferred effects have landed. May fail().
  virtual void block_ends() {}
};

// A block that runs: by itself, or together with the others of its cluster.
struct Block {
  const char* kernel = "";
  gpu::GpuKind kind = gpu::gpu_kind(90);  // of the GPU it runs on
  uint64_t serial = 0;                    // number of the block in the process, from 1
  uint3 index;
  int rank = 0;            // in its cluster
  int cluster_blocks = 1;  // of its cluster
  int first_slot = 0;      // of its threads
  int threads = 0;
  int exited = 0;
  // kArenaBytes, aligned to 4096: dynamic shared memory, then GPU_SHARED arrays.
  std::byte* arena = nullptr;
  size_t dynamic_bytes = 0;

  bool ended() const { return exited == threads; }

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
// Valid only inside a kernel.
inline Thread& self() {
  return *detail::running;
}
// The block of the running thread, or of the deferred effect that lands.
Block& block();
Block& block_of_cluster(int rank);
// The block whose shared memory p is in.
Block& owner(const void* shared);

// Ends the kernel: run_grid throws KernelError, whose text names kernel, block, thread, file:line
// and the message.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(SourceLocation here, const char* format, ...);

// Fails if the GPU lacks what a wrapper is about to use: something since this compute capability,
// or something of 9.0 alone.
void needs(int capability, const char* what, SourceLocation here);
void needs_wgmma(const char* what, SourceLocation here);

// Waits until all lanes of `mask` that have not exited have called it. The last one calls compute
// (null: nothing) for all of them, with each lane's `arg` (null for absent lanes) and the mask of
// the lanes present. arg may be on the caller's stack. Fails if lanes call it on different lines or
// with different `what`.
void warp_collective(const char* what, SourceLocation here, uint32_t mask, void* arg,
                     void (*compute)(void* const (&args)[kWarpLanes], uint32_t mask));

// Returns once ready(context) is true. The predicate of a waiting thread is evaluated again some
// time after notify(); it must not wait itself.
void wait_until(const char* what, SourceLocation here, const void* object, bool (*ready)(void*),
                void* context);
template <typename F>
void wait_until(const char* what, SourceLocation here, const void* object, F ready) {
  wait_until(
      what, here, object, [](void* f) -> bool { return (*static_cast<F*>(f))(); }, &ready);
}
// Reports a change that a thread in wait_until may be waiting for.
void notify();

// Defers an effect. The schedule runs it at once, when no thread can run, or at a random time, at
// the latest when the block ends; it implies notify().
using Ticket = uint64_t;  // 0: the effect has already run
Ticket defer(std::function<void()> landing);
// Runs a deferred effect now, unless it has run.
void land(Ticket ticket);

// The hardware's 32-bit shared address: bytes from the start of its block's shared memory.
uint32_t shared_address(const void* p);
bool is_shared(const void* p);  // of any block of the cluster
// Fail unless p is aligned and [p, p + bytes) is inside one shared array or the dynamic shared
// memory (check_shared), or inside one device allocation (check_global). `what` names the caller.
void check_shared(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment);
void check_global(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment);

// Reports of the wrappers to the race detector (race.cpp; without it these do nothing).
//   note_read, note_write        an access by the calling thread that the compiler does not see
//   note_async_read              a read by TMA or wgmma on its behalf. Between it and an ordinary
//                                write there must be a fence_proxy_async, by the writer or by any
//                                thread on the path of synchronisation from the write to the read
//                                (PTX ISA, "Causality order": a proxy fence along the path).
//   note_async_write             counts as the calling thread's write at the time of issue, and
//                                needs no such fence before an async read
//   note_release, note_acquire   what this thread did before note_release(object) happens before
//                                what follows note_acquire(object)
//   note_remote                  the thread writes to the shared memory of that block of its
//                                cluster, or arrives there, which must come before the block's end
void note_read(const void* p, size_t bytes, SourceLocation here);
void note_write(const void* p, size_t bytes, SourceLocation here);
void note_async_read(const void* p, size_t bytes, SourceLocation here);
void note_async_write(const void* p, size_t bytes, SourceLocation here);
void note_release(const void* object);
void note_acquire(const void* object);
void note_proxy_fence();
void note_remote(const Block& target);

}  // namespace assay::simt
