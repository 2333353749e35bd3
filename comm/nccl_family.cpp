#include "comm/nccl_family.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "comm/bounded_thread.h"
#include "comm/nccl_group.h"
#include "cuda/device.h"

namespace assay {

namespace {

constexpr long kNapNanoseconds = 1'000'000;
// Calls that are made within microseconds are not napped for.
constexpr int kEagerLooks = 100;
constexpr const char* kHint =
    "another rank may have ended: see its output; NCCL_DEBUG=WARN shows more";

}  // namespace

NcclFamily::NcclFamily(int rank, int size, NcclCallbacks callbacks)
    : rank_(rank), size_(size), callbacks_(std::move(callbacks)) {}

NcclCommunicator* NcclFamily::add() {
  return communicators_.emplace_back(new NcclCommunicator);
}

void NcclFamily::remove(NcclCommunicator* communicator) {
  communicators_.erase(std::find(communicators_.begin(), communicators_.end(), communicator));
  delete communicator;
}

ncclResult_t NcclFamily::state(const NcclCommunicator& on) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t answer = nccl().async_error(on.handle, &state);
  return answer == ncclSuccess ? state : answer;
}

void NcclFamily::require_alive() const {
  if (ended_) throw UserError(strprintf("NCCL has ended on rank %d of %d", rank_, size_), kHint);
}

void NcclFamily::fail(const NcclCommunicator& on, const char* how, ncclResult_t result) {
  const char* const last = nccl().last_error(on.handle);
  const std::string detail = last == nullptr || *last == '\0' ? "" : std::string(" (") + last + ")";
  std::string message = strprintf(
      "NCCL on rank %d of %d: %s %s (call %llu of its group): %s%s", rank_, size_, on.call, how,
      static_cast<unsigned long long>(on.calls), nccl().error_string(result), detail.c_str());
  if (!abort()) message += "; NCCL could not be ended";
  // NCCL answers so above all where the GPU has no memory left for its buffers.
  const std::string hint = result == ncclUnhandledCudaError
                               ? std::string("the GPU's memory may be full: ") + gpu::kFullGpuHint +
                                     "; NCCL_DEBUG=WARN shows more"
                               : kHint;
  raise(std::make_exception_ptr(UserError(message, hint)));
}

void NcclFamily::look() {
  if (!callbacks_.look) return;
  try {
    callbacks_.look();
  } catch (...) {
    raise(std::current_exception());
  }
}

void NcclFamily::raise(std::exception_ptr failure) {
  if (!abort() && callbacks_.unended) callbacks_.unended(failure);
  std::rethrow_exception(failure);
}

void NcclFamily::finish(NcclCommunicator& on, const char* call, ncclResult_t result) {
  on.call = call;
  on.calls += 1;
  for (int looks = 0; result == ncclInProgress; ++looks) {
    if (looks < kEagerLooks) {
      sched_yield();
    } else {
      const timespec nap{0, kNapNanoseconds};
      nanosleep(&nap, nullptr);
      look();
    }
    result = state(on);
  }
  if (result != ncclSuccess) fail(on, "failed", result);
}

void NcclFamily::check() {
  require_alive();
  for (const NcclCommunicator* c : communicators_) {
    const ncclResult_t now = state(*c);
    if (now != ncclSuccess && now != ncclInProgress)
      fail(*c, "was the latest call when a failure showed", now);
  }
  look();
}

// ncclCommAbort may block, so another thread calls it. That thread and this one make no calls at
// the same time, unless it is left alone.
bool NcclFamily::abort() {
  if (ended_) return !left_;
  ended_ = true;
  std::vector<ncclComm_t> handles;  // those split off before those they were split off from
  for (auto c = communicators_.rbegin(); c != communicators_.rend(); ++c) {
    if ((*c)->handle != nullptr) handles.push_back((*c)->handle);
  }
  BoundedThread aborting([handles] {
    for (ncclComm_t handle : handles) nccl().abort(handle);
  });
  left_ = !aborting.end_within(std::chrono::seconds(NcclGroup::kMostAbortSeconds));
  return !left_;
}

}  // namespace assay
