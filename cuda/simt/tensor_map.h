// The SIMT emulator's encoding of the 128 bytes of a tensor map.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.h"

namespace assay::simt {

struct SoftTensorMap {
  uint32_t magic;
  uint16_t rank;
  uint16_t span;  // swizzle_span
  const std::byte* base;
  int64_t bytes;  // tensor_map_bytes
  int64_t dim[5];
  int64_t stride[5];  // bytes, of dimension i; stride[0] = 2
  int16_t box[5];
};
static_assert(sizeof(SoftTensorMap) <= sizeof(gpu::TensorMap));

inline constexpr uint32_t kTensorMapMagic = 0x7E45012A;

}  // namespace assay::simt
