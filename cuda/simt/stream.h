// The executor's stream: kernels, products, copies and fills in the order in which they are queued,
// each with its arguments as they were then.
//
// kPrompt: each runs before the call that queues it returns. kLate: when somebody waits, as on a
// GPU that is far behind its host; so a result that is read, or memory that is written again,
// without a wait shows. A recording runs nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace assay::simt {

enum class Pace { kPrompt, kLate };
// At the start: what the environment variable SIMT_STREAM says (prompt, late), or kPrompt. Waits
// first.
void set_pace(Pace pace);

using Queued = std::function<void()>;

// Where the next call goes.
bool runs_at_once();
void enqueue_later(Queued call);
template <typename Call>
void enqueue(Call call) {
  runs_at_once() ? call() : enqueue_later(std::move(call));
}

// What is queued has run. KernelError, as for everything that CUDA refuses while a graph is
// recorded, while one is.
void wait_for_stream();
void require_no_recording(const char* what);

// A copy between host and device. Host memory that is not pinned is read when this is called, and
// written before it returns, as CUDA does; a recording may not name it.
void enqueue_copy(void* to, const void* from, size_t bytes);

// Memory that the host sees too.
void* pinned_malloc(size_t bytes, size_t alignment);
void pinned_free(void* p);

using Recording = std::shared_ptr<const std::vector<Queued>>;
Recording record(const std::function<void()>& calls);
void replay(const Recording& recording);

}  // namespace assay::simt
