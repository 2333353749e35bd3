#include "cuda/simt/wgmma_math.h"

#include <bit>
#include <cstring>

namespace assay::simt {

namespace {

// If the build selects no instruction set, the loops below are compiled for several.
#if defined(__x86_64__) && !defined(__AVX2__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define ASSAY_FOR_EACH_CPU [[gnu::target_clones("avx512f", "arch=haswell", "default")]]
#else
#define ASSAY_FOR_EACH_CPU
#endif

constexpr int kM = 64;
constexpr int kK = 16;

typedef float Float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float Float8 __attribute__((vector_size(32), aligned(4), may_alias));

// Through pointers, because a memcpy is compiled to pieces of 128 bits here.
Float16& at16(float* p) {
  return *reinterpret_cast<Float16*>(p);
}
const Float16& at16(const float* p) {
  return *reinterpret_cast<const Float16*>(p);
}
Float8& at8(float* p) {
  return *reinterpret_cast<Float8*>(p);
}
const Float8& at8(const float* p) {
  return *reinterpret_cast<const Float8*>(p);
}

float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace

WgmmaTile wgmma_tile(uint64_t descriptor) {
  const auto field = [&](int bit) { return uint32_t(descriptor >> bit & 0x3FFF) << 4; };
  constexpr uint32_t kSpan[4] = {16, 128, 64, 32};
  return {.start = field(0),
          .leading = field(16),
          .stride = field(32),
          .base_offset = uint32_t(descriptor >> 49 & 7),
          .span = kSpan[descriptor >> 62]};
}

uint32_t wgmma_address(const WgmmaTile& tile, TileOrder order, int r, int k) {
  const uint32_t row = uint32_t(r), depth = uint32_t(k);
  const uint32_t elements = tile.span / 2;  // of a swizzled row
  uint32_t offset;
  if (order == TileOrder::kKMajor) {
    const uint32_t next_8_of_k = tile.span == 16 ? tile.leading : 16;
    offset = row % 8 * tile.span + row / 8 * tile.stride + depth / 8 * next_8_of_k;
  } else if (tile.span == 16) {
    offset = row / 8 * tile.stride + depth % 8 * 16 + depth / 8 * tile.leading;
  } else {
    offset = row % elements / 8 * 16 + row / elements * tile.leading + depth % 8 * tile.span +
             depth / 8 * tile.stride;
  }
  return swizzled(tile.start + offset, tile.span);
}

ASSAY_FOR_EACH_CPU
bool wgmma_gather(float* out, const WgmmaTile& tile, TileOrder order, int rows,
                  const std::byte* arena, size_t arena_bytes) {
  const int r_step = order == TileOrder::kMNMajor ? 8 : 1,
            k_step = order == TileOrder::kMNMajor ? 1 : 8;
  for (int r = 0; r < rows; r += r_step) {
    for (int k = 0; k < kK; k += k_step) {
      const uint32_t address = wgmma_address(tile, order, r, k);
      if (size_t{address} + 16 > arena_bytes) return false;
      uint16_t piece[8];
      std::memcpy(piece, arena + address, 16);
      float* const to = out + k * rows + r;
      const int pitch = order == TileOrder::kMNMajor ? 1 : rows;
      for (int i = 0; i < 8; ++i) to[i * pitch] = from_bf16(piece[i]);
    }
  }
  return true;
}

bool wgmma_gather_codes(float* out, const WgmmaTile& tile, int rows, const float (&numbers)[256],
                        const std::byte* arena, size_t arena_bytes) {
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < 2 * kK; k += 16) {
      const uint32_t address = wgmma_address(tile, TileOrder::kKMajor, r, k / 2);
      if (size_t{address} + 16 > arena_bytes) return false;
      for (int i = 0; i < 16; ++i)
        out[(k + i) * rows + r] = numbers[std::to_integer<uint8_t>(arena[address + uint32_t(i)])];
    }
  }
  return true;
}

// Tiles of 4 x 16 of d stay in registers over k. With AVX2 a row is two registers: tiles of 4 x 32
// are all sixteen, which were spilled and took five times as long.
ASSAY_FOR_EACH_CPU
void wgmma_multiply(float* d, const float* a, const float* b, int n) {
  for (int column = 0; column < n; column += 16) {
    for (int row = 0; row < kM; row += 4) {
      Float16 sum[4];
      for (int i = 0; i < 4; ++i) sum[i] = at16(d + (row + i) * n + column);
      for (int k = 0; k < kK; ++k) {
        const Float16 right = at16(b + k * n + column);
        for (int i = 0; i < 4; ++i) sum[i] += a[k * kM + row + i] * right;
      }
      for (int i = 0; i < 4; ++i) at16(d + (row + i) * n + column) = sum[i];
    }
  }
}

ASSAY_FOR_EACH_CPU
void mma_multiply(float* d, const float* a, const float* b) {
  for (int row = 0; row < 16; row += 4) {
    Float8 sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = at8(d + (row + i) * 8);
    for (int k = 0; k < 16; ++k) {
      const Float8 right = at8(b + k * 8);
      for (int i = 0; i < 4; ++i) sum[i] += a[(row + i) * 16 + k] * right;
    }
    for (int i = 0; i < 4; ++i) at8(d + (row + i) * 8) = sum[i];
  }
}

}  // namespace assay::simt
