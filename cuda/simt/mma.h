// The SIMT emulator's warp products and matrix loads. Kernels use them through cuda/kernel/mma.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  SourceLocation here = SourceLocation::caller());
// Of 8-bit codes: b is E4M3, a too if a_is_e4m3, else E5M2.
void mma_m16n8k32(float (&d)[4], bool a_is_e4m3, const uint32_t (&a)[4], const uint32_t (&b)[2],
                  SourceLocation here = SourceLocation::caller());
void ldmatrix_x4(uint32_t (&r)[4], const void* row, SourceLocation here = SourceLocation::caller());
void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                       SourceLocation here = SourceLocation::caller());
void stmatrix_x4(void* row, const uint32_t (&r)[4], SourceLocation here = SourceLocation::caller());

}  // namespace assay::simt
