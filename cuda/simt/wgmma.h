// The SIMT emulator's warpgroup products. Kernels use them through cuda/kernel/wgmma.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"
#include "cuda/tensor_map.h"

namespace assay::simt {

// The elements of an operand; a product takes 32 bytes of them along K.
enum class WgmmaElement { kBf16, kE4M3, kE5M2 };

uint64_t wgmma_descriptor(const void* tile, int leading_bytes, int stride_bytes,
                          gpu::Swizzle swizzle = gpu::Swizzle::k128,
                          SourceLocation here = SourceLocation::caller());
// d: the n / 2 accumulators of the calling thread. a and b: descriptors.
void wgmma(float* d, int n, uint64_t a, int a_is_mn_major, uint64_t b, int b_is_mn_major,
           int accumulate, SourceLocation here);
// 8-bit operands, both K-major.
void wgmma_codes(float* d, int n, WgmmaElement a_element, uint64_t a, WgmmaElement b_element,
                 uint64_t b, int accumulate, SourceLocation here);
void wgmma_a_in_registers(float* d, int n, const uint32_t (&a)[4], uint64_t b, int b_is_mn_major,
                          int accumulate, SourceLocation here);
void wgmma_fence(SourceLocation here = SourceLocation::caller());
void wgmma_commit(SourceLocation here = SourceLocation::caller());
void wgmma_wait_groups(int pending, SourceLocation here);
template <int Pending>
inline void wgmma_wait(SourceLocation here = SourceLocation::caller()) {
  wgmma_wait_groups(Pending, here);
}
// Changes nothing here.
void set_registers(SourceLocation here);

}  // namespace assay::simt
