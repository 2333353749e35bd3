#include "cuda/simt/context.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

#include "cuda/simt/memory.h"
#include "cuda/simt/stream.h"

namespace assay::simt {

namespace {

constexpr size_t kAlign = 256;

void* allocate(size_t bytes, gpu::Place place) {
  if (place == gpu::Place::kHostVisible) {
    return std::memset(pinned_malloc(bytes, kAlign), 0, bytes);
  }
  require_no_recording("allocating memory");
  void* const p = device_malloc(bytes, kAlign);
  device_fill(p, 0, bytes);
  return p;
}
// Called by destructors, so the error of a kernel that nobody waited for is dropped.
void release(void* p, gpu::Place place) {
  try {
    wait_for_all();
  } catch (const std::exception&) {
  }
  place == gpu::Place::kHostVisible ? pinned_free(p) : device_free(p);
}
// SIMT_FREE_BYTES in the environment: of a GPU that is not empty.
int64_t available() {
  const char* const free = std::getenv("SIMT_FREE_BYTES");
  return free != nullptr ? std::atoll(free) : INT64_MAX;
}
void copy(const gpu::Context& on, void* to, const void* from, size_t bytes) {
  enqueue_copy(on.stream, to, from, bytes);
}
void wait(const gpu::Context& on) {
  wait_for_stream(on.stream);
}
bool done(const gpu::Context& on) {
  return stream_is_done(on.stream);
}

constexpr gpu::Memory kMemory{allocate, release, available, copy, wait, done};

void* record_graph(const gpu::Context& on, CallRef calls) {
  return new Recording(record(on.stream, calls));
}
void replay_graph(const gpu::Context& on, void* recording) {
  replay(on.stream, *static_cast<Recording*>(recording));
}
void release_graph(void* recording) {
  delete static_cast<Recording*>(recording);
}

constexpr gpu::Graphs kGraphs{record_graph, replay_graph, release_graph};

void follow_stream(const gpu::Context& later, const gpu::Context& earlier) {
  follow(later.stream, earlier.stream);
}

constexpr gpu::Streams kStreams{open_stream, close_stream, follow_stream};

using Clock = std::chrono::steady_clock;
using Event = std::shared_ptr<Clock::time_point>;

std::atomic<int64_t> advanced_ns{0};

void* make_event() {
  return new Event(std::make_shared<Clock::time_point>());
}
void release_event(void* event) {
  delete static_cast<Event*>(event);
}
// Queued work may outlive the handle.
void record_event(const gpu::Context& on, void* event) {
  enqueue(on.stream, [passed = *static_cast<Event*>(event)] {
    *passed = Clock::now() + std::chrono::nanoseconds(advanced_ns);
  });
}
double seconds_between(void* begin, void* end) {
  return std::chrono::duration<double>(**static_cast<Event*>(end) - **static_cast<Event*>(begin))
      .count();
}

constexpr gpu::Events kEvents{make_event, release_event, record_event, seconds_between};

}  // namespace

void advance_clock(std::chrono::nanoseconds by) {
  advanced_ns += by.count();
}

gpu::Context make_context(int capability) {
  return {.kind = gpu::gpu_kind(capability),
          .memory = &kMemory,
          .graphs = &kGraphs,
          .streams = &kStreams,
          .events = &kEvents};
}

}  // namespace assay::simt
