// op_check_cuda [--op NAME] [--filter TEXT] [--large | --small] [--list]: runs every case with the
// CUDA kernels on the GPU: against the scalar reference, then again and in device memory, to the
// same bits. A case's own buffers are pinned host memory at the same address on the device, so that
// cases fill and compare them as on the CPU; large cases run in device memory only. --large: only
// these; --small: only cheap cases. Exits 1 if a case fails or there is no GPU, 77 if this GPU runs
// none of the cases.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "cuda/device.h"
#include "tests/ops/op_run.h"

namespace {

using namespace assay;

std::unique_ptr<gpu::Device> device;

void* allocate(size_t bytes) {
  return device->context()->memory->allocate(bytes, gpu::Place::kHostVisible);
}
void release(void* p) {
  device->context()->memory->release(p, gpu::Place::kHostVisible);
}

// --list and --help need no GPU.
bool runs_cases(int argc, char** argv) {
  const auto says = [](const char* word) {
    return std::strcmp(word, "--list") == 0 || std::strcmp(word, "--help") == 0 ||
           std::strcmp(word, "-h") == 0;
  };
  return std::none_of(argv + 1, argv + argc, says);
}

int run(int argc, char** argv) {
  if (runs_cases(argc, argv)) {
    device = gpu::open_device();
    set_case_memory({allocate, release});
  }
  const auto begin = [] { return Exec{.gpu = device->context()}; };
  OpBackend backend{.program = "op_check_cuda", .variants = {}};
  if (device) backend.capability = device->facts().capability;
  backend.variants.push_back({"once", begin});
  backend.variants.push_back({"again", begin});
  backend.variants.push_back({"in device memory", begin, OpBackend::Variant::Buffers::kACopy});
  const auto in_copy = OpBackend::Variant::Buffers::kACopy;
  backend.variants_of_large = {{"in device memory", begin, in_copy},
                               {"in device memory again", begin, in_copy}};
  backend.large = OpBackend::Large::kAlways;
  backend.copies = {.allocate =
                        [](size_t bytes) {
                          const auto buffer = std::make_shared<gpu::DeviceBuffer>(bytes);
                          return std::shared_ptr<std::byte>(buffer, buffer->data());
                        },
                    .copy =
                        [](void* to, const void* from, size_t bytes) {
                          gpu::copy(*device->context(), to, from, bytes);
                          device->wait();
                        }};
  backend.wait = [] { device->wait(); };
  backend.broken = [] { return device->broken(); };
  return op_check_main(argc, argv, backend);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
