// The SIMT emulator's stream: runs kernels, products, copies and fills in the order in which they
// are queued, each with its arguments of that time.
//
// kPrompt: each runs before the call that queues it returns. kLate: all run at the next wait, as on
// a GPU that is far behind its host; this shows results that are read, and memory that is reused,
// without a wait. While a graph is recorded nothing runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace assay::simt {

enum class Pace { kPrompt, kLate };
// The initial pace is the environment variable SIMT_STREAM (prompt, late), or kPrompt. Waits for
// the stream before the change.
void set_pace(Pace pace);

using Queued = std::function<void()>;

// True if the next queued call runs at once.
bool runs_at_once();
void enqueue_later(Queued call);
template <typename Call>
void enqueue(Call call) {
  runs_at_once() ? call() : enqueue_later(std::move(call));
}

// Runs everything that is queued. While a graph is recorded, this is a KernelError, as is
// everything else that CUDA refuses then (require_no_recording).
void wait_for_stream();
void require_no_recording(const char* what);

// Queues a copy between host and device. Host memory that is not pinned is read at the call, and
// written before it returns, as in CUDA; it cannot be recorded.
void enqueue_copy(void* to, const void* from, size_t bytes);

// Pinned host memory, which kernels access too.
void* pinned_malloc(size_t bytes, size_t alignment);
void pinned_free(void* p);

using Recording = std::shared_ptr<const std::vector<Queued>>;
Recording record(const std::function<void()>& calls);
void replay(const Recording& recording);

}  // namespace assay::simt
