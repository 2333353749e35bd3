// Kinds of NVIDIA GPUs: what code above the kernels must know of a compute capability.
#pragma once

#include <cstdint>

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

// The kind of a compute capability of 8.0 or newer, with the image that image_to_build() names
// (cuda/gpu_kind_text.h). One that is not in the table has what every newer one has, and its own
// image if that names none.
GpuKind gpu_kind(int capability);
// The same kind with the choice of the environment: ASSAY_GPU_PATH=mma takes the mma.sync kernels
// where there are faster ones. UserError if it is something else.
GpuKind with_chosen_path(GpuKind kind);
// The kind of a compute capability with that choice, and the image that this program has for it, if
// any.
GpuKind gpu_kind_by_environment(int capability);

}  // namespace assay::gpu
