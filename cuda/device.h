// The GPU for host code: open it, own its streams, events and memory. Nothing is copyable;
// destructors free what an object owns. Failures are UserErrors with a hint. In a build without
// CUDA device_facts() is empty, and the other functions throw (cuda/device_absent.cpp). A build
// with CUDA also starts on a machine without a driver; only these calls fail there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/product_choice.h"

namespace assay::gpu {

// The driver, the toolkit and one GPU. Versions as CUDA writes them: 13000 is 13.0; 0 is no driver,
// or a build without CUDA. free_bytes is set by open_device().
struct DeviceFacts {
  int driver = 0, toolkit = 0;
  int devices = 0;
  std::string driver_problem = {};  // why the driver cannot say how many; "" if it can
  std::string name;
  int capability = 0;  // 90 is compute capability 9.0
  int multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  int64_t shared_bytes_limit = 0;
  std::string bus = {};   // PCI address, by which NVML knows it
  std::string uuid = {};  // in hexadecimal; of an instance, if the GPU is divided. The same for all
                          // processes, whatever number they know the GPU by
  std::string products_problem = {};  // why cuBLASLt cannot be loaded; "" if it can
};
// number: of the GPU, among those that CUDA_VISIBLE_DEVICES leaves.
DeviceFacts device_facts(int number = 0);
// Throws UserError if the program cannot use the GPU: it was built without CUDA, no driver, one of
// an older major version than the toolkit or one that does not work, no GPU, one that no image of
// the program runs on (cuda/gpu_kind_text.h), or no cuBLASLt.
void require_usable(const DeviceFacts& facts);

// What an allocation throws for which there is not enough memory of the GPU, or of the machine.
UserError out_of_gpu_memory(size_t bytes, int64_t free_bytes);
UserError out_of_pinned_memory(size_t bytes);
// What to do where the GPU's memory is full.
inline constexpr const char* kFullGpuHint =
    "reduce run.micro_batch or the model, or end other programs on the GPU (nvidia-smi)";

namespace detail {
using Handle = std::unique_ptr<void, void (*)(void*)>;
}

class Stream {
 public:
  Stream();
  void* get() const { return handle_.get(); }
  void wait() const;  // until all queued work is done

 private:
  detail::Handle handle_;
};

class Event {
 public:
  Event();
  void record(const Context& on);
  void wait() const;
  double microseconds_since(const Event& earlier) const;  // call wait() first

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

// Pinned host memory: copies are fast and asynchronous, and kernels access it at the same address.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes);  // not initialised
  std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
  size_t bytes() const { return bytes_; }

 private:
  detail::Handle handle_;
  size_t bytes_;
};

// Queues a copy on the stream, in any direction between host and device. It is asynchronous only if
// host memory is pinned.
void copy(const Context& on, void* to, const void* from, size_t bytes);
void fill(const Context& on, void* p, int byte, size_t bytes);  // queued, as copy

// kWaiting if the environment has ASSAY_SYNC_LAUNCHES=1, so that an error names the kernel.
Context::Launches launches_by_environment();

// A GPU (CUDA_VISIBLE_DEVICES selects those that there are), with a stream of its own. The thread
// that opens it makes all calls.
class Device {
 public:
  Context* context() { return &context_; }
  const DeviceFacts& facts() const { return facts_; }
  // Waits for the stream. Throws if a kernel failed, with the names of the latest launches.
  void wait() const { stream_.wait(); }
  // True if a kernel failed in a way that leaves the device unusable.
  bool broken() const;

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  friend std::unique_ptr<Device> open_device(int number);
  explicit Device(DeviceFacts facts);
  DeviceFacts facts_;
  Stream stream_;
  ProductChoices products_;
  Context context_;
};
// Another process has the GPU for itself, or nobody may have it, by its compute mode. Only opening
// it tells.
UserError gpu_in_use();
// UserError as require_usable(), if there is no GPU of this number, or gpu_in_use().
std::unique_ptr<Device> open_device(int number = 0);

}  // namespace assay::gpu
