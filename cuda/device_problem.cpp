#include <cstdlib>
#include <string>
#include <vector>

#include "base/memory_units.h"
#include "cuda/device.h"
#include "cuda/gpu_kind_text.h"

namespace assay::gpu {

namespace {

std::string version(int v) {
  return strprintf("%d.%d", v / 1000, v % 1000 / 10);
}

// "sm_80, sm_90a"
std::string list_of(const std::vector<std::string>& images) {
  std::string list;
  for (const std::string& image : images) list += (list.empty() ? "sm_" : ", sm_") + image;
  return list;
}

// The images that this program could have.
std::vector<std::string> possible_images() {
  std::vector<std::string> all;
  for (int capability = 80; capability < 200; ++capability) {
    const std::string image = image_to_build(capability);
    if (!image.empty() && (all.empty() || all.back() != image)) all.push_back(image);
  }
  return all;
}

void require_image(const DeviceFacts& facts) {
  const std::string gpu = strprintf("%s has compute capability %d.%d", facts.name.c_str(),
                                    facts.capability / 10, facts.capability % 10);
  if (facts.capability < 80) {
    throw UserError(gpu + ", the kernels need 8.0 or newer",
                    "choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu");
  }
  if (!image_for(facts.capability, built_images()).empty()) return;
  const std::string image = image_to_build(facts.capability);
  const std::string todo = image.empty() ? "it can be built for " + list_of(possible_images()) +
                                               ", none of which runs on this GPU: "
                                         : "build it with cmake -DASSAY_GPUS=" + image + ", ";
  throw UserError(gpu + ", this program was built for " + list_of(built_images()),
                  todo + "choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu");
}

}  // namespace

void require_usable(const DeviceFacts& facts) {
  if (facts.toolkit == 0) {
    throw UserError("this program was built without CUDA",
                    "use --device cpu, or build it where CMake finds the CUDA toolkit (nvcc)");
  }
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
  if (!facts.driver_problem.empty()) {
    throw UserError("the NVIDIA driver does not work: " + facts.driver_problem,
                    "restart after an update of the driver, and with NVSwitch start "
                    "nvidia-fabricmanager; nvidia-smi may say more; --device cpu works meanwhile");
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

UserError out_of_gpu_memory(size_t bytes, int64_t free_bytes) {
  return UserError(strprintf("cannot allocate %.2f GiB of device memory, %.2f GiB of GPU memory is "
                             "free",
                             in_gib(bytes), in_gib(free_bytes)),
                   kFullGpuHint);
}

UserError out_of_pinned_memory(size_t bytes) {
  return UserError(
      strprintf("cannot pin %.2f GiB of the machine's memory for the GPU", in_gib(bytes)),
      "end other programs on this machine (free -h), give its container more memory, or reduce "
      "run.micro_batch or the model");
}

UserError gpu_in_use() {
  return UserError(
      "the GPU is in use: another process has it for itself, or its compute mode lets nobody have "
      "it",
      "nvidia-smi shows the process and the mode; choose another GPU with CUDA_VISIBLE_DEVICES, or "
      "use --device cpu");
}

Context::Launches launches_by_environment() {
  const char* const waiting = std::getenv("ASSAY_SYNC_LAUNCHES");
  return waiting != nullptr && std::string(waiting) == "1" ? Context::Launches::kWaiting
                                                           : Context::Launches::kQueued;
}

}  // namespace assay::gpu
