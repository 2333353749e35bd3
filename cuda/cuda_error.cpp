#include "cuda/cuda_error.h"

#include <atomic>

#include "base/check.h"
#include "cuda/stuck_wait.h"

namespace assay::gpu {

namespace {

constexpr uint64_t kRemembered = 4;
std::atomic<const char*> ring[kRemembered];
std::atomic<uint64_t> started{0};

std::string recent_kernels() {
  std::string names;
  const uint64_t n = started.load();
  for (uint64_t back = 1; back <= std::min(n, kRemembered); ++back) {
    names += (back > 1 ? ", " : "") + std::string(ring[(n - back) % kRemembered].load());
  }
  return names.empty() ? "none" : names;
}

}  // namespace

void remember_kernel(const char* name) {
  ring[started.load() % kRemembered] = name;
  ++started;
}

void cuda_check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  throw UserError(strprintf("CUDA failed while %s: %s (%s); latest launches, newest first: %s%s",
                            doing.c_str(), cudaGetErrorString(status), cudaGetErrorName(status),
                            recent_kernels().c_str(), stuck_wait_text(stuck_wait()).c_str()),
                  "set ASSAY_SYNC_LAUNCHES=1 to wait for each kernel and name the one that fails; "
                  "--device cpu works meanwhile");
}

}  // namespace assay::gpu
