// cuda/device.h for a build without the CUDA toolkit: using a GPU is a user error.
#include <cstdlib>

#include "cuda/device.h"
#include "cuda/product_library.h"

namespace assay::gpu {

namespace {

[[noreturn]] void absent() {
  require_usable({});  // throws: there is no toolkit
  std::abort();
}

}  // namespace

DeviceFacts device_facts(int) {
  return {};
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
