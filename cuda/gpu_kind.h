// Kinds of NVIDIA GPUs: what code above the kernels must know of a compute capability, and the
// images, the machine code for one architecture each, that this program was built with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::gpu {

// How attention and the experts' products in bf16 use the tensor cores. kMmaSync: by warps, from
// registers, on every GPU. kWgmma: by warpgroups, from shared memory that TMA fills.
enum class Products { kMmaSync, kWgmma };

struct GpuKind {
  int capability;  // 90 is compute capability 9.0
  Products products;
  int64_t shared_bytes;  // most shared memory of a block
  bool clusters;         // of blocks that read each other's shared memory
  bool fp8_conversions;  // instructions that round to e4m3 and e5m2
  bool block_scale_mma;  // mma.sync of MXFP8 and NVFP4 operands with their scales
  // Capability of the image that it runs. What an older one lacks is done in other instructions.
  int image;
};

// The kind of a compute capability of 8.0 or newer, with the image that image_to_build() names. One
// that is not in the table has what every newer one has, and its own image if that names none.
GpuKind gpu_kind(int capability);
// The compute capabilities of the table: 80, 86, ...
std::vector<int> known_capabilities();
// The same kind with the choice of the environment: ASSAY_GPU_PATH=mma takes the mma.sync kernels
// where there are faster ones. UserError if it is something else.
GpuKind with_chosen_path(GpuKind kind);
// The kind of a compute capability with that choice, and the image that this program has for it, if
// any.
GpuKind gpu_kind_by_environment(int capability);

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
// The images, of those that this program can be built for, that run on a GPU.
std::vector<std::string> images_of(int capability);

}  // namespace assay::gpu
