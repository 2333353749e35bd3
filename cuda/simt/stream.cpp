#include "cuda/simt/stream.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/queues.h"
#include "cuda/simt/run_grid.h"

namespace assay::simt {
namespace {

constexpr std::pair<const char*, Pace> kPaces[] = {{"prompt", Pace::kPrompt},
                                                   {"late", Pace::kLate},
                                                   {"lane-first", Pace::kLaneFirst},
                                                   {"lane-last", Pace::kLaneLast}};

Pace pace_by_environment() {
  const char* const text = std::getenv("SIMT_STREAM");
  const std::string wanted = text ? text : "prompt";
  for (const auto& [name, pace] : kPaces) {
    if (wanted == name) return pace;
  }
  throw UserError("unknown stream pace '" + wanted + "'",
                  "set SIMT_STREAM to prompt, late, lane-first or lane-last");
}

// A stream is in a recording if it is the recorded one or follows one that is. It is loose while
// something was queued on it that the recorded stream does not wait for.
struct Recorder {
  size_t stream;
  Queues queues = {};
  std::vector<bool> inside = {}, loose = {};
};

struct Streams {
  Pace pace = pace_by_environment();
  std::optional<Recorder> recorder;
  Queues queues;
  std::vector<bool> open = {true};     // by number; the main stream is number 0
  std::map<uintptr_t, size_t> pinned;  // bytes by address
};
Streams& streams() {
  static Streams s;
  return s;
}

size_t number_of(Stream stream) {
  return reinterpret_cast<uintptr_t>(stream);
}
Stream handle_of(size_t number) {
  return reinterpret_cast<Stream>(number);
}

bool is_pinned(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto next = streams().pinned.upper_bound(address);
  return next != streams().pinned.begin() &&
         address < std::prev(next)->first + std::prev(next)->second;
}
bool is_known(const void* p) {
  return is_device_pointer(p) || is_pinned(p);
}

// After an error nothing that was queued runs.
bool go_on() {
  Streams& s = streams();
  try {
    return s.queues.go_on(s.pace);
  } catch (...) {
    s.queues = {};
    throw;
  }
}

void go_on_if_prompt() {
  if (streams().recorder || streams().pace != Pace::kPrompt) return;
  while (go_on()) {
  }
}

void push(Stream stream, Operation operation) {
  Streams& s = streams();
  const size_t number = number_of(stream);
  if (!s.recorder) return s.queues.push(number, std::move(operation));
  Recorder& r = *s.recorder;
  if (!r.inside[number]) {
    throw KernelError(
        "work on a stream that does not follow the recorded one, while a graph is "
        "recorded");
  }
  r.loose[number] = number != r.stream;
  r.queues.push(number, std::move(operation));
}

}  // namespace

void set_pace(Pace pace) {
  wait_for_all();
  streams().pace = pace;
}

Stream open_stream() {
  auto& open = streams().open;
  size_t number = 1;
  while (number < open.size() && open[number]) number += 1;
  open.resize(std::max(open.size(), number + 1));
  open[number] = true;
  return handle_of(number);
}

void close_stream(Stream stream) {
  wait_for_stream(stream);
  streams().open[number_of(stream)] = false;
}

void follow(Stream later, Stream earlier) {
  Streams& s = streams();
  const size_t to = number_of(later), from = number_of(earlier);
  if (!s.recorder) return s.queues.edge(to, from);
  Recorder& r = *s.recorder;
  if (!r.inside[from]) {
    throw KernelError("an edge from a stream outside of the graph that is recorded");
  }
  r.queues.edge(to, from);
  r.inside[to] = true;
  r.loose[to] = to != r.stream && (r.loose[to] || r.loose[from]);
  r.loose[from] = false;
}

bool runs_at_once(Stream stream) {
  const Streams& s = streams();
  return !s.recorder && s.pace == Pace::kPrompt && s.queues.empty(number_of(stream));
}

void enqueue_operation(Stream stream, Operation operation) {
  push(stream, std::move(operation));
  go_on_if_prompt();
}

void enqueue_later(Stream stream, Queued call) {
  enqueue_operation(stream, [call = std::move(call)]() -> Poll {
    call();
    return {};
  });
}

bool stream_is_done(Stream stream) {
  require_no_recording("waiting");
  go_on_if_prompt();
  const size_t number = number_of(stream);
  while (!streams().queues.empty(number) && go_on()) {
  }
  return streams().queues.empty(number);
}

void wait_for_stream(Stream stream) {
  while (!stream_is_done(stream)) sched_yield();
}

void wait_for_all() {
  for (size_t number = 0; number < streams().open.size(); ++number) {
    wait_for_stream(handle_of(number));
  }
}

void require_no_recording(const char* what) {
  if (streams().recorder) throw KernelError(strprintf("%s while a graph is recorded", what));
}

void enqueue_copy(Stream stream, void* to, const void* from, size_t bytes) {
  if (runs_at_once(stream)) return device_copy(to, from, bytes);
  if (is_known(to) && is_known(from)) {
    return enqueue_later(stream, [=] { device_copy(to, from, bytes); });
  }
  require_no_recording("a copy of host memory that is not pinned");
  if (!is_known(to)) {
    wait_for_stream(stream);
    return device_copy(to, from, bytes);
  }
  const auto* const first = static_cast<const std::byte*>(from);
  enqueue_later(stream, [to, staged = std::vector<std::byte>(first, first + bytes)] {
    device_copy(to, staged.data(), staged.size());
  });
}

void* pinned_malloc(size_t bytes, size_t alignment) {
  require_no_recording("pinning memory");
  const size_t rounded = round_up(std::max<size_t>(bytes, 1), alignment);
  void* const p = std::aligned_alloc(alignment, rounded);
  CHECK(p != nullptr, "cannot allocate %zu bytes of pinned memory", bytes);
  streams().pinned[reinterpret_cast<uintptr_t>(p)] = rounded;
  return p;
}

void pinned_free(void* p) {
  streams().pinned.erase(reinterpret_cast<uintptr_t>(p));
  std::free(p);
}

Recording record(Stream stream, CallRef calls) {
  require_no_recording("recording");
  Streams& s = streams();
  const size_t number = number_of(stream);
  std::vector<bool> inside(s.open.size());
  inside[number] = true;
  s.recorder =
      Recorder{.stream = number, .inside = inside, .loose = std::vector<bool>(s.open.size())};
  try {
    calls();
  } catch (...) {
    s.recorder.reset();
    throw;
  }
  const Recorder recorded = *std::exchange(s.recorder, std::nullopt);
  if (std::find(recorded.loose.begin(), recorded.loose.end(), true) != recorded.loose.end()) {
    throw KernelError("the recorded stream does not follow all work of a graph");
  }
  return std::make_shared<const Queues>(recorded.queues);
}

void replay(Stream stream, const Recording& recording) {
  enqueue_operation(stream, [recording]() -> Poll {
    const auto run = std::make_shared<Queues>(*recording);
    Poll poll = [run] {
      while (run->go_on(streams().pace)) {
      }
      return run->empty();
    };
    return poll() ? Poll() : poll;
  });
}

}  // namespace assay::simt
