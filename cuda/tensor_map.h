// Tensor maps: what TMA needs to know of a tensor in global memory and of the tile it copies.
//
// The 128 bytes are the driver's on a GPU and our own under cuda/simt. Both makers check the same
// rules: base aligned to 16 bytes, strides multiples of 16 and of the one before, box at most 256
// in each dimension, and with a swizzle an inner box of exactly its span (the driver takes a
// shorter one; then rows lie a span apart with gaps, which no kernel here wants).
#pragma once

#include <cstdint>
#include <string>

namespace assay::gpu {

enum class Swizzle { kNone, k32, k64, k128 };

struct alignas(128) TensorMap {
  uint64_t opaque[16] = {};
};

// Elements of 2 bytes (bf16). Innermost dimension first; it is contiguous, stride_bytes[i] belongs
// to dimension i + 1.
struct TensorMapSpec {
  const char* name;  // for errors
  const void* base;
  int rank;  // 2 to 5
  int64_t dim[5] = {};
  int64_t stride_bytes[4] = {};
  int box[5] = {};
  Swizzle swizzle = Swizzle::k128;
};

TensorMap make_tensor_map(const TensorMapSpec& spec);

// What is wrong with a spec by the rules above (the driver's, from the text of
// cuTensorMapEncodeTiled); empty if nothing.
std::string tensor_map_problem(const TensorMapSpec& spec);
// From the base to the end of the last row.
int64_t tensor_map_bytes(const TensorMapSpec& spec);

// Bytes of a row that the swizzle permutes by pieces of 16; 16 without a swizzle.
constexpr int swizzle_span(Swizzle swizzle) {
  return swizzle == Swizzle::kNone ? 16
         : swizzle == Swizzle::k32 ? 32
         : swizzle == Swizzle::k64 ? 64
                                   : 128;
}

}  // namespace assay::gpu
