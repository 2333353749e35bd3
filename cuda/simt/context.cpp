#include "cuda/simt/context.h"

#include <cstring>
#include <exception>

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
    wait_for_stream();
  } catch (const std::exception&) {
  }
  place == gpu::Place::kHostVisible ? pinned_free(p) : device_free(p);
}
int64_t available() {
  return INT64_MAX;
}
void copy(const gpu::Context&, void* to, const void* from, size_t bytes) {
  enqueue_copy(to, from, bytes);
}
void wait(const gpu::Context&) {
  wait_for_stream();
}

constexpr gpu::Memory kMemory{allocate, release, available, copy, wait};

void* record_graph(const gpu::Context&, const std::function<void()>& calls) {
  return new Recording(record(calls));
}
void replay_graph(const gpu::Context&, void* recording) {
  replay(*static_cast<Recording*>(recording));
}
void release_graph(void* recording) {
  delete static_cast<Recording*>(recording);
}

constexpr gpu::Graphs kGraphs{record_graph, replay_graph, release_graph};

}  // namespace

gpu::Context make_context() {
  return {.memory = &kMemory, .graphs = &kGraphs};
}

}  // namespace assay::simt
