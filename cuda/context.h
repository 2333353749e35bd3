// What a GPU is to the code above the kernels: a stream, its size, and memory. Made by
// gpu::open_device (cuda/device.h) or, for kernels that run on the CPU, by simt::make_context
// (cuda/simt/context.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace assay::gpu {

// kDevice: only kernels and copies touch it. kHostVisible: the host reads and writes it at the same
// address (pinned memory that the device reaches over the bus: small things only).
enum class Place { kDevice, kHostVisible };

struct Context;

struct Memory {
  void* (*allocate)(size_t bytes,
                    Place place);  // zeroed, aligned to 256 bytes; UserError where it cannot
  void (*release)(void* p, Place place);
  int64_t (*available)();  // bytes of kDevice that are free now
  // Queued on the context's stream; cuda/transfer.h.
  void (*copy)(const Context& on, void* to, const void* from, size_t bytes);
  void (*wait)(const Context& on);
};

// cuda/graph.h. A recording is as its maker knows it.
struct Graphs {
  void* (*record)(const Context& on, const std::function<void()>& calls);
  void (*replay)(const Context& on, void* recording);
  void (*release)(void* recording);
};

// Outlives every Exec that names it.
struct Context {
  void* stream = nullptr;               // cudaStream_t
  int multiprocessors = 4;              // SMs: what a persistent grid is sized by
  int64_t shared_bytes_limit = 232448;  // dynamic shared memory a block may have
  const Memory* memory = nullptr;
  const Graphs* graphs = nullptr;
  // kWaiting: launch() waits for each kernel, so that a failure names its kernel.
  enum class Launches { kQueued, kWaiting } launches = Launches::kQueued;
};

}  // namespace assay::gpu
