// Tensor-core products of one warp from registers (mma.sync), and the loads that fill them.
//
// mma_m16n8k16: d (16 x 8, float) += a (16 x 16, bf16) b (16 x 8, bf16). With g = lane / 4, t =
// lane % 4:
//   a[0] (g, 2t..2t+1)   a[1] (g + 8, 2t..)   a[2] (g, 2t + 8..)   a[3] (g + 8, 2t + 8..)
//   b[0] (2t..2t+1, g)   b[1] (2t + 8.., g)   d: cuda/kernel/accumulators.h
// Elements are (row, column). A register of a or b has two of them, the first in its low half.
//
// mma_m16n8k32: the same with 8-bit elements, a (16 x 32) of the format that its parameter names, b
// (32 x 8) always of E4M3, four in a register, the first in its low byte:
//   a[0] (g, 4t..4t+3)   a[1] (g + 8, 4t..)   a[2] (g, 4t + 16..)   a[3] (g + 8, 4t + 16..)
//   b[0] (4t..4t+3, g)   b[1] (4t + 16.., g)
// As with wgmma_m64k32 the hardware may keep fewer bits of these sums than a float has.
// Source of the layouts: PTX ISA, "Matrix fragments for mma.m16n8k16" and "mma.m16n8k32".
#pragma once

#include <cstdint>

#include "cuda/kernel/async.h"
#include "cuda/kernel/fp8.h"
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
#else
using simt::mma_m16n8k16;
#endif

// mma_m16n8k32 as two products in bf16, which holds every code: for images before 8.9. Element 4t +
// i of K is at place 2t + i of a product, and 4t + 2 + i at 2t + 8 + i, in a as in b: the sum is
// the same in another order.
template <Fp8 A>
GPU_DEVICE void mma_codes_as_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t left[4], right[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      left[i] = bf16_of_codes<A>(a[2 * half + i]);
      left[i + 2] = bf16_of_codes<A>(a[2 * half + i] >> 16);
      right[i] = bf16_of_codes<Fp8::kE4M3>(b[half] >> 16 * i);
    }
    mma_m16n8k16(d, left, right);
  }
}

#if defined(__CUDACC__)

template <Fp8 A>
GPU_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ < 890
  mma_codes_as_bf16<A>(d, a, b);
#else
  if constexpr (A == Fp8::kE4M3) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
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
template <Fp8 A>
GPU_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             simt::SourceLocation here = simt::SourceLocation::caller()) {
  if (simt::block().kind.image < 89) return mma_codes_as_bf16<A>(d, a, b);
  simt::mma_m16n8k32(d, A == Fp8::kE4M3, a, b, here);
}
GPU_DEVICE void stmatrix_x4(void* row, const uint32_t (&r)[4],
                            simt::SourceLocation here = simt::SourceLocation::caller()) {
  if (simt::block().kind.image < 90) return stmatrix_by_shuffles(row, r);
  simt::stmatrix_x4(row, r, here);
}

#endif

}  // namespace assay::gpu
