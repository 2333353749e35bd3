// The GPU for host code: open it, own its streams, events and memory. Everything is move-only and
// is freed by its destructor; what goes wrong is a UserError that says what to do. A build without
// CUDA has the same functions, which refuse (cuda/device_absent.cpp); a program with CUDA in it
// starts where there is no driver, and only these calls fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/context.h"

namespace assay::gpu {

// What the machine says of itself. Versions as CUDA writes them: 13000 is 13.0; no driver: 0.
struct DeviceFacts {
  int driver = 0, toolkit = 0;
  int devices = 0;
  std::string name;
  int capability = 0;  // 90: sm_90
  int multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  int64_t shared_bytes_limit = 0;
  std::string products_problem = {};  // why cuBLASLt, which they need, cannot be loaded
};
DeviceFacts device_facts();
// Throws UserError if nothing can run there: no driver, one older than the toolkit, no GPU, not the
// architecture that the kernels are compiled for (sm_90a runs on 9.0 only), no cuBLASLt.
void require_usable(const DeviceFacts& facts);

namespace detail {
using Handle = std::unique_ptr<void, void (*)(void*)>;
}

class Stream {
 public:
  Stream();
  void* get() const { return handle_.get(); }
  void wait() const;  // until all that is queued is done

 private:
  detail::Handle handle_;
};

class Event {
 public:
  Event();
  void record(const Context& on);
  void wait() const;
  double microseconds_since(const Event& earlier) const;  // after wait()

 private:
  detail::Handle handle_;
};

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes);  // not initialised
  std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
  size_t bytes() const { return bytes_; }

 private:
  detail::Handle handle_;
  size_t bytes_;
};

// Host memory that copies run fast from, and that kernels reach at the same address.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes);  // not initialised
  std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
  size_t bytes() const { return bytes_; }

 private:
  detail::Handle handle_;
  size_t bytes_;
};

// Queued on the stream, in any direction between host and device; host memory must be pinned to be
// asynchronous.
void copy(const Context& on, void* to, const void* from, size_t bytes);
void fill(const Context& on, void* p, int byte, size_t bytes);

// kWaiting where the environment has ASSAY_SYNC_LAUNCHES=1: it names the kernel that fails.
Context::Launches launches_by_environment();

// GPU 0 (CUDA_VISIBLE_DEVICES chooses), with a stream of its own.
class Device {
 public:
  Context* context() { return &context_; }
  const DeviceFacts& facts() const { return facts_; }
  // Throws what a kernel before has done wrong, with the names of the last ones.
  void wait() const { stream_.wait(); }
  // Has a kernel failed in a way that leaves nothing usable?
  bool broken() const;

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  friend std::unique_ptr<Device> open_device();
  explicit Device(DeviceFacts facts);
  DeviceFacts facts_;
  Stream stream_;
  Context context_;
};
std::unique_ptr<Device> open_device();

}  // namespace assay::gpu
