// The arithmetic of wgmma and the address of every operand element in shared memory, independent of
// the rest of the SIMT emulator.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::simt {

// The fields of a matrix descriptor, which wgmma_descriptor in cuda/kernel/wgmma.h puts together.
// Source: PTX ISA, "Matrix descriptor format" of wgmma: bits 0-13 address / 16, 16-29
// leading dimension offset / 16, 32-45 stride dimension offset / 16, 49-51 base offset, 62-63
// swizzle (0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes).
struct WgmmaTile {
  uint32_t start = 0;    // shared address
  uint32_t leading = 0;  // bytes
  uint32_t stride = 0;   // bytes
  uint32_t base_offset = 0;
  uint32_t span = 16;  // bytes of a swizzled row: 16 (no swizzle), 32, 64 or 128
};
WgmmaTile wgmma_tile(uint64_t descriptor);

// The index that is contiguous in memory: k, or that of M or N.
enum class TileOrder { kKMajor, kMNMajor };

// The XOR that TMA and wgmma apply to shared addresses: log2(span / 16) bits, from bit 4 on, with
// those from bit 7 on. Source: PTX ISA, "Swizzling modes"; in CuTe Swizzle<1|2|3, 4, 3>.
constexpr uint32_t swizzled(uint32_t address, uint32_t span) {
  return address ^ ((address >> 3) & (span - 16));
}

// Shared address of the 8 neighbouring elements (16 bytes) that hold element (r, k): r counts along
// M or N, k along K in [0, 16). K-major: (r, k rounded down to 8); MN-major: (r rounded down to 8,
// k). Source: PTX ISA, "Canonical layouts" of wgmma, with T = 8 elements of 16 bits:
//   K-major    none ((8, m), (T, 2)) : ((T, stride), (1, leading))
//              span ((8, m), (T, 2)) : ((span, stride), (1, T))
//   MN-major   none ((T, 1, m), (8, 2)) : ((1, T, stride), (T, leading))
//              span ((T, span / T, m), (8, 2)) : ((1, T, leading), (span, stride))
uint32_t wgmma_address(const WgmmaTile& tile, TileOrder order, int r, int k);

// out[k * rows + r] = element (r, k); `arena` is shared address 0 and has `arena_bytes`. False if
// an address is outside.
[[nodiscard]] bool wgmma_gather(float* out, const WgmmaTile& tile, TileOrder order, int rows,
                                const std::byte* arena, size_t arena_bytes);

// The same for 8-bit codes, K-major, k in [0, 32): 16 bytes hold 16 elements, so element (r, k) is
// where (r, k / 2) of the 16-bit tile is. numbers: the value of each code.
[[nodiscard]] bool wgmma_gather_codes(float* out, const WgmmaTile& tile, int rows,
                                      const float (&numbers)[256], const std::byte* arena,
                                      size_t arena_bytes);

// d (64 x n) += a b, a[k * 64 + row], b[k * n + column], 16 steps of k in order. n: a multiple of
// 32.
void wgmma_multiply(float* d, const float* a, const float* b, int n);

// d (16 x 8) += a (16 x 16) b (16 x 8), all row by row.
void mma_multiply(float* d, const float* a, const float* b);

}  // namespace assay::simt
