// What is said of kinds of GPUs (cuda/gpu_kind.h, which kernels read), and the images, the machine
// code for one architecture each, that this program was built with.
#pragma once

#include <string>
#include <vector>

#include "cuda/gpu_kind.h"

namespace assay::gpu {

// The compute capabilities of the table of kinds: 80, 86, ...
std::vector<int> known_capabilities();

// "mma.sync, 99 KB of shared memory a block, fp8 conversions"
std::string kind_text(const GpuKind& kind);
// What slows a run on such a GPU down, compared with what it could do, and what to do about it.
struct SlowPart {
  std::string what, todo;
};
std::vector<SlowPart> slow_parts(const GpuKind& kind);

// The images of this program (CMake's ASSAY_GPUS): "80", "90a", "100". An image runs on later GPUs
// of the same major version, but for Tegra's 8.7; with an a it runs on this capability only.
const std::vector<std::string>& built_images();
// The best of `images` for a GPU; "" if none runs on it.
std::string image_for(int capability, const std::vector<std::string>& images);
// The image to build for a GPU; "" if the kernels cannot be built for it.
std::string image_to_build(int capability);
// The images, of all that can be built (ASSAY_GPUS), that run on a GPU.
std::vector<std::string> images_of(int capability);

}  // namespace assay::gpu
