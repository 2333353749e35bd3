// The 8-bit element formats of the tensor cores, and their codes as bf16, which holds each exactly.
#pragma once

#include <cstdint>

#include "base/small_float.h"
#include "cuda/kernel/warp.h"

namespace assay::gpu {

enum class Fp8 { kE4M3, kE5M2 };

// The two codes in the low half of `codes`, the first in its low byte.
template <Fp8 Format>
GPU_DEVICE uint32_t bf16_of_codes(uint32_t codes) {
  const uint32_t low = codes & 0xFFu, high = codes >> 8 & 0xFFu;
  if constexpr (Format == Fp8::kE4M3) return pack_bf16(e4m3::decode(low), e4m3::decode(high));
  return pack_bf16(e5m2::decode(low), e5m2::decode(high));
}

}  // namespace assay::gpu
