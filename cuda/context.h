// What the code above the kernels knows of a GPU: a stream, its size and its memory. Made by
// gpu::open_device (cuda/device.h), or by simt::make_context (cuda/simt/context.h) for the SIMT
// emulator, which runs kernels on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/call_ref.h"
#include "cuda/gpu_kind.h"
#include "cuda/predecessors.h"

namespace assay::gpu {

// kDevice: only kernels and copies touch it. kHostVisible: the host reads and writes it at the same
// address (pinned memory that the device accesses over the bus: for small data only).
enum class Place { kDevice, kHostVisible };

// What a process leaves free of its GPU's memory: kernels are loaded at their first launch, and
// recorded graphs take some.
inline constexpr int64_t kTakenLater = int64_t{256} << 20;

struct Context;
class ProductChoices;  // cuda/product_choice.h

struct Memory {
  // Zeroed, aligned to 256 bytes. UserError if there is not enough memory.
  void* (*allocate)(size_t bytes, Place place);
  void (*release)(void* p, Place place);
  int64_t (*available)();  // free bytes of kDevice
  // Queued on the context's stream (cuda/transfer.h).
  void (*copy)(const Context& on, void* to, const void* from, size_t bytes);
  void (*wait)(const Context& on);
  // Whether all that is queued has run. Throws if a kernel failed.
  bool (*done)(const Context& on);
};

// The implementation of cuda/graph.h. The type behind a recording is private to it.
struct Graphs {
  void* (*record)(const Context& on, CallRef calls);
  void (*replay)(const Context& on, void* recording);
  void (*release)(void* recording);
};

// The implementation of cuda/lane.h.
struct Streams {
  void* (*open)();
  void (*close)(void* stream);
  void (*follow)(const Context& later, const Context& earlier);
};

// Marks on a stream, for cuda/event_spans.h. While a graph is recorded, `record` adds the mark to
// it.
struct Events {
  void* (*make)();
  void (*release)(void* event);
  void (*record)(const Context& on, void* event);
  double (*seconds)(void* begin, void* end);  // between two that have been passed
};

// Looks, each millisecond of a wait() (cuda/transfer.h), whether what is waited for can still come.
class Watcher {
 public:
  virtual void check() = 0;  // ends the wait by throwing

 protected:
  ~Watcher() = default;
};

// Must outlive every Exec that points to it.
struct Context {
  void* stream = nullptr;   // cudaStream_t
  int multiprocessors = 4;  // SMs; sizes persistent grids
  GpuKind kind = gpu_kind(90);
  Predecessors predecessors = {};
  const Memory* memory = nullptr;
  const Graphs* graphs = nullptr;
  const Streams* streams = nullptr;
  const Events* events = nullptr;
  ProductChoices* products = nullptr;  // of the device that has opened it
  // kWaiting: launch() waits for each kernel, so that a failure names its kernel.
  enum class Launches { kQueued, kWaiting } launches = Launches::kQueued;
  Watcher* watch = nullptr;  // with ranks; null: wait() leaves the waiting to the driver
};

}  // namespace assay::gpu
