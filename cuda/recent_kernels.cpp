#include "cuda/recent_kernels.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace assay::gpu {

namespace {

constexpr uint64_t kRemembered = 4;
std::atomic<const char*> ring[kRemembered];
std::atomic<uint64_t> started{0};

}  // namespace

void remember_kernel(const char* name) {
  ring[started.load() % kRemembered] = name;
  ++started;
}

bool launched_any() {
  return started.load() > 0;
}

std::string recent_kernels() {
  std::string names;
  const uint64_t n = started.load();
  for (uint64_t back = 1; back <= std::min(n, kRemembered); ++back) {
    names += (back > 1 ? ", " : "") + std::string(ring[(n - back) % kRemembered].load());
  }
  return names.empty() ? "none" : names;
}

}  // namespace assay::gpu
