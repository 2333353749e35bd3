// Tensor-core products of a warpgroup (128 threads) from shared memory: d (64 x N, float) += a (64
// x 16) b (16 x N).
//
// All 128 threads call. The products run asynchronously: wgmma_fence() before the first,
// wgmma_commit() after a batch, wgmma_wait<batches that may still run>() before d is read, a's
// registers are changed or the tiles are written again.
//
// d: with w = warp of the group, g = lane / 4, t = lane % 4, i in [0, N / 8):
//   d[4 i] (16 w + g, 8 i + 2 t)  d[4 i + 1] (.., + 1)  d[4 i + 2] (16 w + g + 8, 8 i + 2 t)  d[4 i + 3] (.., + 1)
// a in registers: as in gpu_mma.h, with rows 16 w + ...
//
// wgmma_m64k32: the same with 8-bit elements, a (64 x 32), b (32 x N), both K-major; 32 of them
// take the bytes of 16 bf16. The hardware keeps about 14 bits of these sums (tests/tolerance.h:
// short_accumulators), so that long ones are best added up outside.
//
// Tiles in shared memory lie as TMA writes them with a 128-byte swizzle, aligned to 1024 bytes:
// atoms of 8 rows of 64 elements.
//   Major::kK   rows along M or N, 64 elements along K in a row. Next 8 rows: stride_bytes on (1024 when rows follow
//               each other). The next 16 of K: the tile's address + 32 bytes. leading_bytes is not used.
//   Major::kMN  rows along K, 64 elements along M or N in a row. Next 8 of K: stride_bytes on (1024); the next 64 of M or N:
//               leading_bytes on. The next 16 of K: the tile's address + 2048 bytes.
// Source: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout".
#pragma once

#include <cstdint>

#include "cuda/kernel/async.h"
#include "cuda/kernel/language.h"
#include "cuda/tensor_map.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

enum class Major { kK = 0, kMN = 1 };
enum class Fp8 { kE4M3, kE5M2 };

}  // namespace assay::gpu

#if defined(__CUDACC__)
#include "cuda/kernel/wgmma_ptx.h"
#endif

namespace assay::gpu {

#if defined(__CUDACC__)

GPU_DEVICE uint64_t wgmma_descriptor(const void* tile, int leading_bytes, int stride_bytes,
                                     Swizzle swizzle = Swizzle::k128) {
  const uint64_t mode = swizzle == Swizzle::k128  ? 1
                        : swizzle == Swizzle::k64 ? 2
                        : swizzle == Swizzle::k32 ? 3
                                                  : 0;
  return uint64_t((shared_address(tile) & 0x3FFFF) >> 4) | uint64_t(leading_bytes >> 4) << 16 |
         uint64_t(stride_bytes >> 4) << 32 | mode << 62;
}
// N: 32, 64, 96, 128, 192 or 256. accumulate = 0: d is overwritten.
template <int N, Major A, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  detail::wgmma_asm<A, B>(d, a, b, accumulate);
}
template <int N, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                             int accumulate) {
  detail::wgmma_asm<B>(d, a, b, accumulate);
}
// N: 128. B: E4M3.
template <int N, Fp8 A>
GPU_DEVICE void wgmma_m64k32(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  detail::wgmma_fp8_asm<A>(d, a, b, accumulate);
}
GPU_DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GPU_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
GPU_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// After the wait: the compiler moves no read of d over it, which nothing else ties to d.
template <int Numbers>
GPU_DEVICE void wgmma_arrived(float (&d)[Numbers]) {
#pragma unroll
  for (int i = 0; i < Numbers; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Registers a thread of this warpgroup: given back by those that copy, taken by those that compute.
// A multiple of 8; the kernel needs __launch_bounds__(threads, 1).
template <int Registers>
GPU_DEVICE void set_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
GPU_DEVICE void set_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

#else

using simt::wgmma_commit;
using simt::wgmma_descriptor;
using simt::wgmma_fence;
using simt::wgmma_wait;
template <int N, Major A, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate,
                             simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::wgmma(d, N, a, A == Major::kMN, b, B == Major::kMN, accumulate, here);
}
template <int N, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate,
                             simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::wgmma_a_in_registers(d, N, a, b, B == Major::kMN, accumulate, here);
}
template <int N, Fp8 A>
GPU_DEVICE void wgmma_m64k32(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate,
                             simt::SourceLocation here = simt::SourceLocation::caller()) {
  using Element = simt::WgmmaElement;
  simt::wgmma_codes(d, N, A == Fp8::kE4M3 ? Element::kE4M3 : Element::kE5M2, a, Element::kE4M3, b,
                    accumulate, here);
}
template <int Numbers>
GPU_DEVICE void wgmma_arrived(float (&)[Numbers]) {}
template <int Registers>
GPU_DEVICE void set_registers_down() {}
template <int Registers>
GPU_DEVICE void set_registers_up() {}

#endif

}  // namespace assay::gpu
