// Tensor maps: TMA's description of a tensor in global memory and of the tile that it copies.
//
// On a GPU the driver encodes the 128 bytes; the SIMT emulator has an encoding of its own. Both
// check the same rules: the base is aligned to 16 bytes, each stride is a multiple of 16 and of the
// previous stride, the box is at most 256 in each dimension, and with a swizzle the inner box is
// exactly its span (the driver also takes a shorter one, whose rows are a span apart with gaps; no
// kernel here uses that).
#pragma once

#include <cstdint>

#include "base/bf16.h"

namespace assay::gpu {

enum class Swizzle { kNone, k32, k64, k128 };

struct alignas(128) TensorMap {
  uint64_t opaque[16] = {};
};

// Elements have 2 bytes: a tensor of another type has to be made one of bf16 by a cast that shows,
// as pairs of 8-bit codes are. The innermost dimension is first and contiguous; stride_bytes[i]
// belongs to dimension i + 1. dim and box count elements.
struct TensorMapSpec {
  const char* name;  // for errors
  const bf16* base;
  int rank;  // 2 to 5
  int64_t dim[5] = {};
  int64_t stride_bytes[4] = {};
  int box[5] = {};
  Swizzle swizzle = Swizzle::k128;
};

// Aborts if tensor_map_problem() (cuda/tensor_map_problem.h) finds a problem.
TensorMap make_tensor_map(const TensorMapSpec& spec);

// Bytes from the base to the end of the last row.
int64_t tensor_map_bytes(const TensorMapSpec& spec);

// Bytes of the row within which the swizzle permutes 16-byte pieces; 16 without a swizzle.
constexpr int swizzle_span(Swizzle swizzle) {
  return swizzle == Swizzle::kNone ? 16
         : swizzle == Swizzle::k32 ? 32
         : swizzle == Swizzle::k64 ? 64
                                   : 128;
}

}  // namespace assay::gpu
