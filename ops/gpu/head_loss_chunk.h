// The scratch of the head's chunks on a GPU, which builds without CUDA plan too.
#pragma once

#include <cstdint>

#include "base/math.h"

namespace assay::gpu {

// Per chunk, dweight is read and written and the weight is read twice: 56 KB per token at V =
// 50304, C = 768.
inline constexpr int64_t kHeadChunkRows = 8192;

// Of a chunk: losses, then logits.
inline int64_t head_chunk_bytes(int64_t rows, int64_t vocab, int64_t element_bytes) {
  return round_up(rows * 4, 64) + rows * vocab * element_bytes;
}

}  // namespace assay::gpu
