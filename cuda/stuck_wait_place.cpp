// The word of cuda/stuck_wait.h on a GPU: pinned host memory, which outlives the context that a
// trap ends.
#include <atomic>
#include <vector>

#include "cuda/cuda_error.h"
#include "cuda/stuck_wait.h"

namespace assay::gpu {

namespace {

// Made by the first file that is initialised: the order of files is not known.
std::vector<SetStuckWaitPlace>& files() {
  static std::vector<SetStuckWaitPlace> all;
  return all;
}
uint64_t* place = nullptr;

}  // namespace

StuckWaitFile::StuckWaitFile(SetStuckWaitPlace set) {
  files().push_back(set);
}

void open_stuck_waits() {
  if (files().empty() || place != nullptr) return;
  void* p = nullptr;
  cuda_check(cudaHostAlloc(&p, sizeof *place, cudaHostAllocMapped), "allocating host memory");
  place = static_cast<uint64_t*>(p);
  *place = 0;
  for (const SetStuckWaitPlace set : files()) set(place);
}

uint64_t stuck_wait() {
  return place == nullptr ? 0 : std::atomic_ref(*place).load();
}

}  // namespace assay::gpu
