#include "cuda/simt/context.h"

#include <cstdlib>
#include <cstring>

#include "cuda/simt/memory.h"

namespace assay::simt {

namespace {

constexpr size_t kAlign = 256;

void* allocate(size_t bytes, gpu::Place place) {
  if (place == gpu::Place::kHostVisible) {
    void* const p = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
    return std::memset(p, 0, bytes);
  }
  void* const p = device_malloc(bytes, kAlign);
  device_fill(p, 0, bytes);
  return p;
}
void release(void* p, gpu::Place place) {
  place == gpu::Place::kHostVisible ? std::free(p) : device_free(p);
}
int64_t available() {
  return INT64_MAX;
}
void copy(const gpu::Context&, void* to, const void* from, size_t bytes) {
  device_copy(to, from, bytes);
}
void wait(const gpu::Context&) {}

constexpr gpu::Memory kMemory{allocate, release, available, copy, wait};

}  // namespace

gpu::Context make_context() {
  return {.memory = &kMemory};
}

}  // namespace assay::simt
