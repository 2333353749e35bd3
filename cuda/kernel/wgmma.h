// Tensor-core products of a warpgroup (128 threads) from shared memory: d (64 x N, float) += a (64
// x 16) b (16 x N).
//
// All 128 threads make the call. Products run asynchronously: wgmma_fence() before the first,
// wgmma_commit() after a batch, and wgmma_wait<Pending>() before d is read, the registers of a are
// changed or the tiles are written again. Pending: the number of batches that may still run.
//
// Warp w of the warpgroup has rows 16 w to 16 w + 15 of d, and of a if that is in registers, in the
// layout of cuda/kernel/accumulators.h.
//
// wgmma_m64k32: the same with 8-bit elements, a (64 x 32), b (32 x N), both K-major; 32 of them
// have the bytes of 16 bf16. The hardware keeps about 14 bits of these sums (short_accumulators in
// tests/tolerance.h), so long sums are best added up outside.
//
// Tiles in shared memory are as TMA writes them with a 128-byte swizzle, aligned to 1024 bytes:
// atoms of 8 rows of 64 elements.
//   Major::kK    Rows along M or N, 64 elements along K per row.
//                The next 8 rows: + stride_bytes (1024 if rows are contiguous).
//                The next 16 of K: + 32 bytes to the tile's address (k_step_bytes).
//                leading_bytes is not used.
//   Major::kMN   Rows along K, 64 elements along M or N per row.
//                The next 8 of K: + stride_bytes (1024).
//                The next 64 of M or N: + leading_bytes.
//                The next 16 of K: + 2048 bytes to the tile's address (k_step_bytes).
// Source: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout".
#pragma once

#include <cstdint>

#include "cuda/kernel/async.h"
#include "cuda/kernel/fp8.h"
#include "cuda/kernel/language.h"
#include "cuda/tensor_map.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

enum class Major { kK = 0, kMN = 1 };

// Bytes from the operand of one product to that of the next 16 of K (32 of 8-bit elements).
template <Major Order>
constexpr int k_step_bytes() {
  return Order == Major::kK ? 32 : 2048;
}
// The same step for a descriptor, which counts 16 bytes.
template <Major Order>
constexpr uint64_t descriptor_step() {
  return k_step_bytes<Order>() >> 4;
}

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
// N: 32, 64, 96, 128, 192 or 256. a and b are wgmma_descriptor()s, or a is in registers.
// accumulate = 0: d is overwritten.
template <int N, Major A, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  detail::wgmma_asm<A, B>(d, a, b, accumulate);
}
template <int N, Major B>
GPU_DEVICE void wgmma_m64k16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                             int accumulate) {
  detail::wgmma_asm<B>(d, a, b, accumulate);
}
// N: 128. A is the format of a; b is E4M3.
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
// Called after wgmma_wait. It keeps the compiler from moving reads of d above the wait, which
// itself does not mention d.
template <int Numbers>
GPU_DEVICE void wgmma_arrived(float (&d)[Numbers]) {
#pragma unroll
  for (int i = 0; i < Numbers; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Sets the registers per thread of this warpgroup, a multiple of 8: down in warpgroups that copy,
// up in those that compute. The kernel needs __launch_bounds__(threads, 1).
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
GPU_DEVICE void set_registers_down(simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::set_registers(here);
}
template <int Registers>
GPU_DEVICE void set_registers_up(simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::set_registers(here);
}

#endif

}  // namespace assay::gpu
