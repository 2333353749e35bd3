// Blocks of 32 x 32 sums on the CPU matrix unit, for builds whose target has it (ASSAY_AMX).
// Operands are words of two bf16 that are adjacent along the summed axis, a step: a (rows, steps),
// b (steps, columns).
#pragma once

#include "ops/cpu_gemm/amx_target.h"

#if ASSAY_AMX
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace assay::amx {

constexpr int64_t kTile = 16;          // rows, columns and steps
constexpr int64_t kBlock = 2 * kTile;  // rows and columns of sums computed together

// Shapes of the eight tile registers: all 16 x 64 bytes. Tiles 0-3 hold c, 4-5 a, 6-7 b.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
class TileUnit {
 public:
  TileUnit() {
    static const TileShapes kShapes;
    _tile_loadconfig(&kShapes);
  }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
  ~TileUnit() { _tile_release(); }  // a thread without tiles is cheaper to switch
};

// The unit slows down after about a thousand cycles without a product and sleeps after about three
// thousand; the next product then waits one or two thousand for it. Work between products calls
// this every few hundred cycles; the tiles must hold nothing that is still needed.
[[gnu::always_inline]] inline void stay_awake() {
  _tile_dpbf16ps(0, 4, 6);
}

// Up to 2 x 2 tiles of c. Strides are bytes between rows.
struct Block {
  const std::byte* a;  // in  the first tile
  int64_t a_stride;
  int64_t a_tile;      //     to the tile 16 rows below
  int64_t a_chunk;     //     to the tile of the next 16 steps
  const std::byte* b;  // in  16 steps of 16 columns; the next columns are 64 bytes away
  int64_t b_stride;
  // in  the steps after the last whole 16, padded with zeros to (16, kBlock); null: none
  const std::byte* b_rest;
  int64_t chunks;      //     number of 16-step chunks, without the rest
  const float* start;  // in  null: 0
  float* c;            // out
  int64_t start_stride, c_stride;
};

template <int RowTiles, int ColTiles>
[[gnu::always_inline]] inline void multiply_chunk(const std::byte* a, const Block& x,
                                                  const std::byte* b, int64_t b_stride) {
  _tile_loadd(6, b, b_stride);
  _tile_loadd(4, a, x.a_stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (ColTiles == 2) {
    _tile_loadd(7, b + 64, b_stride);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (RowTiles == 2) {
    _tile_loadd(5, a + x.a_tile, x.a_stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (ColTiles == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

template <int RowTiles, int ColTiles>
inline void block_kernel(const Block& x) {
  asm volatile("" ::: "memory");  // compilers assume that tile loads do not read memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (x.start != nullptr) {
    const int64_t down = kTile * x.start_stride / int64_t{sizeof(float)};
    _tile_loadd(0, x.start, x.start_stride);
    if constexpr (ColTiles == 2) _tile_loadd(1, x.start + kTile, x.start_stride);
    if constexpr (RowTiles == 2) _tile_loadd(2, x.start + down, x.start_stride);
    if constexpr (RowTiles * ColTiles == 4) _tile_loadd(3, x.start + down + kTile, x.start_stride);
  }
  const std::byte* a = x.a;
  const std::byte* b = x.b;
  for (int64_t i = 0; i < x.chunks; ++i, a += x.a_chunk, b += kTile * x.b_stride) {
    multiply_chunk<RowTiles, ColTiles>(a, x, b, x.b_stride);
  }
  if (x.b_rest != nullptr) multiply_chunk<RowTiles, ColTiles>(a, x, x.b_rest, 4 * kBlock);
  const int64_t down = kTile * x.c_stride / int64_t{sizeof(float)};
  _tile_stored(0, x.c, x.c_stride);
  if constexpr (ColTiles == 2) _tile_stored(1, x.c + kTile, x.c_stride);
  if constexpr (RowTiles == 2) _tile_stored(2, x.c + down, x.c_stride);
  if constexpr (RowTiles * ColTiles == 4) _tile_stored(3, x.c + down + kTile, x.c_stride);
}

inline void multiply_block(const Block& x, int64_t row_tiles, int64_t col_tiles) {
  if (row_tiles == 2) {
    col_tiles == 2 ? block_kernel<2, 2>(x) : block_kernel<2, 1>(x);
  } else {
    col_tiles == 2 ? block_kernel<1, 2>(x) : block_kernel<1, 1>(x);
  }
}

}  // namespace assay::amx

#endif
