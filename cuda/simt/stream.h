// The SIMT emulator's streams: each runs kernels, products, copies, fills and operations in the
// order in which they are queued, each with its arguments of that time. A stream is named by the
// handle in gpu::Context: null is the main stream, the others are lanes (cuda/lane.h). Only edges
// order two streams.
//
// kPrompt: each call runs before the call that queues it returns, if what it waits for is done.
// kLate: all run at the next wait, in the order in which they were queued, as on a GPU that is far
// behind its host; this shows results that are read, and memory that is reused, without a wait.
// kLaneFirst, kLaneLast: they run at a wait too, those of lanes before or after those of the main
// stream as far as the edges allow; this shows missing edges. While a graph is recorded nothing
// runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay::simt {

enum class Pace { kPrompt, kLate, kLaneFirst, kLaneLast };
// The initial pace is the environment variable SIMT_STREAM (prompt, late, lane-first, lane-last),
// or kPrompt. Waits for all streams before the change.
void set_pace(Pace pace);

using Stream = void*;
inline Stream stream_of(Exec on) {
  return on.gpu == nullptr ? nullptr : on.gpu->stream;
}
inline gpu::GpuKind kind_of(Exec on) {
  return on.gpu ? on.gpu->kind : gpu::gpu_kind(90);
}
Stream open_stream();
// Waits for it.
void close_stream(Stream stream);
// What is queued on `later` from now on waits for what is queued on `earlier` so far.
void follow(Stream later, Stream earlier);

using Queued = std::function<void()>;

// True if the next queued call runs at once.
bool runs_at_once(Stream stream);
void enqueue_later(Stream stream, Queued call);
template <typename Call>
void enqueue(Stream stream, Call call) {
  runs_at_once(stream) ? call() : enqueue_later(stream, std::move(call));
}

// Work that goes on while the host does other things, as communication does. It is begun when all
// before it is done, then asked again and again, by waits and by whatever queues more, until it
// answers true. A Poll that is null is done.
using Poll = std::function<bool()>;
using Operation = std::function<Poll()>;
void enqueue_operation(Stream stream, Operation operation);

// Goes on with what can go on; true if nothing is left on the stream. While a graph is recorded
// this and the waits are KernelErrors, as is everything else that CUDA refuses then
// (require_no_recording).
bool stream_is_done(Stream stream);
void wait_for_stream(Stream stream);
void wait_for_all();
void require_no_recording(const char* what);

// Queues a copy between host and device. Host memory that is not pinned is read at the call, and
// written before it returns, as in CUDA; it cannot be recorded.
void enqueue_copy(Stream stream, void* to, const void* from, size_t bytes);

// Pinned host memory, which kernels access too.
void* pinned_malloc(size_t bytes, size_t alignment);
void pinned_free(void* p);

// What `calls` queue on `stream`, and on the streams that follow it while they run. Those must be
// followed again before the end.
class Queues;
using Recording = std::shared_ptr<const Queues>;
Recording record(Stream stream, CallRef calls);
void replay(Stream stream, const Recording& recording);

}  // namespace assay::simt
