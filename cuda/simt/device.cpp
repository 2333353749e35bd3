// cuda/device.h on the SIMT emulator: a program that links this instead of the GPU's trains with
// the CUDA kernels on the CPU. For tests of whole runs; it is as slow as the emulator. SIMT_GPU in
// the environment is the compute capability of its GPU; 90 without. With SIMT_IN_USE=1 another
// process has it.
#include "cuda/device.h"

#include <cstdlib>
#include <utility>

#include "cuda/product_library.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/stream.h"

namespace assay::gpu {

namespace {

detail::Handle nothing() {
  return {nullptr, [](void*) {}};
}
detail::Handle allocated(size_t bytes, Place place) {
  const Memory& memory = *simt::make_context().memory;
  void* const p = memory.allocate(bytes, place);
  if (place == Place::kDevice) {
    return {p, [](void* q) { simt::make_context().memory->release(q, Place::kDevice); }};
  }
  return {p, [](void* q) { simt::make_context().memory->release(q, Place::kHostVisible); }};
}

}  // namespace

DeviceFacts device_facts(int) {
  const char* const chosen = std::getenv("SIMT_GPU");
  const char* const uuid = std::getenv("SIMT_UUID");  // processes have one GPU, or one each
  const int capability = chosen ? std::atoi(chosen) : 90;
  const Context context = simt::make_context(capability);
  return {.driver = 13000,
          .toolkit = 13000,
          .devices = 1,
          .name = "executor on the CPU",
          .capability = capability,
          .multiprocessors = context.multiprocessors,
          .memory_bytes = INT64_MAX,
          .free_bytes = INT64_MAX,
          .l2_bytes = 0,
          .shared_bytes_limit = context.kind.shared_bytes,
          .uuid = uuid ? uuid : "executor"};
}

Stream::Stream() : handle_(nothing()) {}
void Stream::wait() const {
  simt::wait_for_stream(get());
}

Event::Event() : handle_(nothing()) {}
void Event::record(const Context&) {}
void Event::wait() const {
  simt::wait_for_all();
}
double Event::microseconds_since(const Event&) const {
  return 0;
}

DeviceBuffer::DeviceBuffer(size_t bytes)
    : handle_(allocated(bytes, Place::kDevice)), bytes_(bytes) {}
PinnedBuffer::PinnedBuffer(size_t bytes)
    : handle_(allocated(bytes, Place::kHostVisible)), bytes_(bytes) {}

void copy(const Context& on, void* to, const void* from, size_t bytes) {
  on.memory->copy(on, to, from, bytes);
}
void fill(const Context& on, void* p, int byte, size_t bytes) {
  simt::enqueue(on.stream, [=] { simt::device_fill(p, byte, bytes); });
}

Device::Device(DeviceFacts facts) : facts_(std::move(facts)), context_(simt::make_context()) {
  context_.kind = gpu_kind_by_environment(facts_.capability);
  context_.predecessors = predecessors_by_environment();
  context_.products = &products_;
  context_.launches = launches_by_environment();
}
// The emulator's loops have one way. Programs that put cuBLASLt's files in their place have its.
[[gnu::weak]] const ProductLibrary* product_library() {
  return nullptr;
}

bool Device::broken() const {
  return false;
}
std::unique_ptr<Device> open_device(int) {
  const char* const in_use = std::getenv("SIMT_IN_USE");
  if (in_use != nullptr && *in_use == '1') throw gpu_in_use();
  return std::unique_ptr<Device>(new Device(device_facts()));
}

}  // namespace assay::gpu
