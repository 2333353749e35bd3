// A GPU whose memory the host cannot touch, for tests of copies: they run at a wait, and are
// counted.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/exec.h"
#include "engine/tensor_ref.h"

namespace assay {

class FakeGpu {
 public:
  // Has the same elements; zeros where `like` has no data.
  explicit FakeGpu(std::vector<TensorRef> like) : tensors(std::move(like)) {
    size_t bytes = 64;
    for (const TensorRef& t : tensors) bytes += padded(t);
    memory_.resize(bytes);
    void* const addresses =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(addresses != MAP_FAILED, "mmap of %zu bytes", bytes);
    addresses_ = static_cast<std::byte*>(addresses);
    std::byte* next = addresses_;
    for (TensorRef& t : tensors) {
      if (t.data != nullptr && t.bytes() > 0) std::memcpy(real(next), t.data, size_t(t.bytes()));
      t.data = next;
      next += padded(t);
    }
    context_.stream = this;
    context_.memory = &kMemory;
  }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;
  ~FakeGpu() { munmap(addresses_, memory_.size()); }

  Exec on() { return {.gpu = &context_}; }
  // The bytes of a tensor where the test may look at them.
  const char* bytes_of(const TensorRef& tensor) {
    return static_cast<const char*>(static_cast<const void*>(real(tensor.data)));
  }

  std::vector<TensorRef> tensors;
  size_t largest = 0;      // copy
  int copies = 0;          // that ran
  int fails_at = -1;       // the copy at whose wait the GPU fails
  bool one_thread = true;  // made all calls: the one that made this

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };

  static size_t padded(const TensorRef& t) { return (size_t(t.bytes()) + 63) / 64 * 64; }
  static FakeGpu& of(const gpu::Context& on) { return *static_cast<FakeGpu*>(on.stream); }

  bool is_here(const void* p) const { return p >= addresses_ && p < addresses_ + memory_.size(); }
  std::byte* real(const void* p) {
    return memory_.data() + (static_cast<const std::byte*>(p) - addresses_);
  }

  static void copy(const gpu::Context& on, void* to, const void* from, size_t bytes) {
    FakeGpu& gpu = of(on);
    CHECK(gpu.is_here(to) != gpu.is_here(from), "a copy of %zu bytes to %p from %p", bytes, to,
          from);
    gpu.one_thread = gpu.one_thread && std::this_thread::get_id() == gpu.thread_;
    gpu.largest = std::max(gpu.largest, bytes);
    gpu.queued_.push_back({to, from, bytes});
  }
  static void wait(const gpu::Context& on) {
    FakeGpu& gpu = of(on);
    for (const Copy& c : std::exchange(gpu.queued_, {})) {
      if (gpu.copies++ == gpu.fails_at) throw UserError("the GPU failed", "look at the GPU");
      std::memcpy(gpu.is_here(c.to) ? gpu.real(c.to) : c.to,
                  gpu.is_here(c.from) ? gpu.real(c.from) : c.from, c.bytes);
    }
  }

  static constexpr gpu::Memory kMemory{.allocate = nullptr,
                                       .release = nullptr,
                                       .available = nullptr,
                                       .copy = copy,
                                       .wait = wait,
                                       .done = nullptr};

  gpu::Context context_;
  std::vector<std::byte> memory_;
  std::byte* addresses_ = nullptr;  // of memory_, for the host
  std::vector<Copy> queued_;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace assay
