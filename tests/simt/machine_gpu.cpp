#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "cuda/device.h"
#include "tests/simt/machine.h"

namespace assay::test {

namespace {

std::unique_ptr<gpu::Device> open() {
  try {
    auto device = gpu::open_device();
    const int capability = device->facts().capability;
    if (capability == 90) return device;
    std::printf("not run: this GPU has compute capability %d.%d, the wrappers are for 9.0\n",
                capability / 10, capability % 10);
    std::exit(77);  // ctest's SKIP_RETURN_CODE
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    std::exit(1);
  }
}

}  // namespace

Exec machine() {
  static const std::unique_ptr<gpu::Device> device = open();
  return {.gpu = device->context()};
}

gpu::Context* emulated(int) {
  return nullptr;
}

void under_schedules(const std::function<void()>& body) {
  body();
}

}  // namespace assay::test
