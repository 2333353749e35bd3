#include "cuda/simt/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/run_grid.h"

namespace assay::simt {
namespace {

Pace pace_by_environment() {
  const char* const text = std::getenv("SIMT_STREAM");
  const std::string pace = text ? text : "prompt";
  if (pace == "prompt") return Pace::kPrompt;
  if (pace == "late") return Pace::kLate;
  throw UserError("unknown stream pace '" + pace + "'", "set SIMT_STREAM to prompt or late");
}

struct Stream {
  Pace pace = pace_by_environment();
  bool recording = false;
  std::vector<Queued> queued;
  std::map<uintptr_t, size_t> pinned;  // bytes by address
};
Stream& stream() {
  static Stream s;
  return s;
}

bool is_pinned(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto next = stream().pinned.upper_bound(address);
  return next != stream().pinned.begin() &&
         address < std::prev(next)->first + std::prev(next)->second;
}
bool is_known(const void* p) {
  return is_device_pointer(p) || is_pinned(p);
}

void run(const std::vector<Queued>& calls) {
  for (const Queued& call : calls) call();
}

}  // namespace

void set_pace(Pace pace) {
  wait_for_stream();
  stream().pace = pace;
}

bool runs_at_once() {
  const Stream& s = stream();
  return !s.recording && s.pace == Pace::kPrompt;
}

void enqueue_later(Queued call) {
  stream().queued.push_back(std::move(call));
}

void wait_for_stream() {
  require_no_recording("waiting");
  run(std::exchange(stream().queued, {}));
}

void require_no_recording(const char* what) {
  if (stream().recording) throw KernelError(strprintf("%s while a graph is recorded", what));
}

void enqueue_copy(void* to, const void* from, size_t bytes) {
  if (runs_at_once()) return device_copy(to, from, bytes);
  if (is_known(to) && is_known(from)) {
    return enqueue_later([=] { device_copy(to, from, bytes); });
  }
  require_no_recording("a copy of host memory that is not pinned");
  if (!is_known(to)) {
    wait_for_stream();
    return device_copy(to, from, bytes);
  }
  const auto* const first = static_cast<const std::byte*>(from);
  enqueue_later([to, staged = std::vector<std::byte>(first, first + bytes)] {
    device_copy(to, staged.data(), staged.size());
  });
}

void* pinned_malloc(size_t bytes, size_t alignment) {
  require_no_recording("pinning memory");
  const size_t rounded = round_up(std::max<size_t>(bytes, 1), alignment);
  void* const p = std::aligned_alloc(alignment, rounded);
  CHECK(p != nullptr, "cannot allocate %zu bytes of pinned memory", bytes);
  stream().pinned[reinterpret_cast<uintptr_t>(p)] = rounded;
  return p;
}

void pinned_free(void* p) {
  stream().pinned.erase(reinterpret_cast<uintptr_t>(p));
  std::free(p);
}

Recording record(const std::function<void()>& calls) {
  require_no_recording("recording");
  Stream& s = stream();
  std::vector<Queued> before = std::exchange(s.queued, {});
  s.recording = true;
  try {
    calls();
  } catch (...) {
    s.recording = false;
    s.queued = std::move(before);
    throw;
  }
  s.recording = false;
  return std::make_shared<const std::vector<Queued>>(std::exchange(s.queued, std::move(before)));
}

void replay(const Recording& recording) {
  enqueue([recording] { run(*recording); });
}

}  // namespace assay::simt
