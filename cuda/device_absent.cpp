// cuda/device.h for a build without the CUDA toolkit: using a GPU is a user error.
#include "base/check.h"
#include "cuda/device.h"
#include "cuda/product_library.h"

namespace assay::gpu {

namespace {

[[noreturn]] void absent() {
  throw UserError("this program was built without CUDA",
                  "use --device cpu, or build it where CMake finds the CUDA toolkit (nvcc)");
}

}  // namespace

DeviceFacts device_facts(int) {
  absent();
}

Stream::Stream() : handle_(nullptr, nullptr) {
  absent();
}
void Stream::wait() const {}

Event::Event() : handle_(nullptr, nullptr) {
  absent();
}
void Event::record(const Context&) {}
void Event::wait() const {}
double Event::microseconds_since(const Event&) const {
  absent();
}

DeviceBuffer::DeviceBuffer(size_t) : handle_(nullptr, nullptr) {
  absent();
}
PinnedBuffer::PinnedBuffer(size_t) : handle_(nullptr, nullptr) {
  absent();
}

void copy(const Context&, void*, const void*, size_t) {
  absent();
}
void fill(const Context&, void*, int, size_t) {
  absent();
}

bool Device::broken() const {
  return true;
}
std::unique_ptr<Device> open_device(int) {
  absent();
}
const ProductLibrary* product_library() {
  return nullptr;
}

}  // namespace assay::gpu
