#include <cstdlib>
#include <string>

#include "base/check.h"
#include "cuda/device.h"
#include "cuda/gpu_kind.h"

namespace assay::gpu {

namespace {

std::string version(int v) {
  return strprintf("%d.%d", v / 1000, v % 1000 / 10);
}

void require_image(const DeviceFacts& facts) {
  const std::string gpu = strprintf("%s has compute capability %d.%d", facts.name.c_str(),
                                    facts.capability / 10, facts.capability % 10);
  if (facts.capability < 80) {
    throw UserError(gpu + ", the kernels need 8.0 or newer",
                    "choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu");
  }
  if (!image_for(facts.capability, built_images()).empty()) return;
  std::string images;
  for (const std::string& image : built_images())
    images += (images.empty() ? "sm_" : ", sm_") + image;
  throw UserError(gpu + ", this program was built for " + images,
                  "build it with cmake -DASSAY_GPUS=" + image_to_build(facts.capability) +
                      ", choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu");
}

}  // namespace

void require_usable(const DeviceFacts& facts) {
  if (facts.driver == 0) {
    throw UserError("no NVIDIA driver on this machine (libcuda.so.1 was not found)",
                    "use --device cpu; for the GPU install the driver, and in a container start it "
                    "with the GPU passed in");
  }
  if (facts.driver / 1000 < facts.toolkit / 1000) {
    throw UserError(
        strprintf("the NVIDIA driver is for CUDA %s, this program needs CUDA %s",
                  version(facts.driver).c_str(), version(facts.toolkit).c_str()),
        "update the driver, or build with the toolkit of the driver's version; --device "
        "cpu works meanwhile");
  }
  if (facts.devices == 0) {
    throw UserError("the NVIDIA driver reports no GPU",
                    "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu");
  }
  require_image(facts);
  if (!facts.products_problem.empty()) {
    throw UserError(facts.products_problem + ": matrix products on the GPU need cuBLASLt",
                    "install cuBLAS from the CUDA toolkit, or add its folder to LD_LIBRARY_PATH; "
                    "--device cpu works meanwhile");
  }
}

Context::Launches launches_by_environment() {
  const char* const waiting = std::getenv("ASSAY_SYNC_LAUNCHES");
  return waiting != nullptr && std::string(waiting) == "1" ? Context::Launches::kWaiting
                                                           : Context::Launches::kQueued;
}

}  // namespace assay::gpu
