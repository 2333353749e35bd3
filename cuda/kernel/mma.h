// Tensor-core products of one warp from registers (mma.sync), and the loads that fill them.
//
// mma_m16n8k16: d (16 x 8, float) += a (16 x 16, bf16) b (16 x 8, bf16). With g = lane / 4, t =
// lane % 4:
//   a[0] (g, 2t..2t+1)   a[1] (g + 8, 2t..)   a[2] (g, 2t + 8..)   a[3] (g + 8, 2t + 8..)
//   b[0] (2t..2t+1, g)   b[1] (2t + 8.., g)   d: cuda/kernel/accumulators.h
// Elements are (row, column). A register of a or b has two of them, the first in its low half.
// Source of the layouts: PTX ISA, "Matrix fragments for mma.m16n8k16".
#pragma once

#include <cstdint>

#include "cuda/kernel/async.h"
#include "cuda/kernel/language.h"
#include "cuda/kernel/warp.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

// stmatrix_x4 from shuffles and stores: each lane gets the address of its row of each matrix from
// the lane that has it.
GPU_DEVICE void stmatrix_by_shuffles(void* row, const uint32_t (&r)[4]) {
  const uint32_t mine = shared_address(row);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t there = shuffle(mine, 8 * i + lane() / 4);
    reinterpret_cast<uint32_t*>(static_cast<char*>(row) + int(there - mine))[lane() % 4] = r[i];
  }
}

#if defined(__CUDACC__)

GPU_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices of 16-bit elements. Lanes 8 i to 8 i + 7 pass the addresses of the rows
// of matrix i (16 bytes each, 16-byte aligned, shared memory). r[i] receives row lane / 4, columns
// 2 (lane % 4) and the next of matrix i; with _trans, of its transpose.
GPU_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
GPU_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The inverse of ldmatrix_x4: four 8 x 8 matrices from registers to rows in shared memory. GPUs
// before 9.0 have no instruction for it.
GPU_DEVICE void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ < 900
  stmatrix_by_shuffles(row, r);
#else
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
#endif
}

#else

using simt::ldmatrix_x4;
using simt::ldmatrix_x4_trans;
using simt::mma_m16n8k16;
GPU_DEVICE void stmatrix_x4(void* row, const uint32_t (&r)[4],
                            simt::SourceLocation here = simt::SourceLocation::caller()) {
  if (simt::block().kind.capability < 90) return stmatrix_by_shuffles(row, r);
  simt::stmatrix_x4(row, r, here);
}

#endif

}  // namespace assay::gpu
