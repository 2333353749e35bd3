// Tiles of bf16 rows in shared memory, and the mma.sync fragments loaded from them.
//
// A tile holds rows of D elements without padding. The index of a 16-byte chunk of a row is XORed
// with bits of the row number, so that the chunks of one column in eight adjacent rows, which
// ldmatrix reads at once, are in different banks.
#pragma once

#include <cstdint>

#include "cuda/gpu.h"

namespace assay::gpu {

// Chunk `chunk` of row row0 + row; row0 is a multiple of 8, so that the XOR does not depend on it.
template <int D, typename B>
GPU_DEVICE B* chunk_of(B* tile, int row0, uint32_t row, uint32_t chunk) {
  const uint32_t turn = D == 32 ? row / 2 % 4 : row % 8;  // two rows of 32 elements share the banks
  return tile + row0 * D + (row * D + (chunk ^ turn) * 8);
}

// A fragment: rows row0 to row0 + 15, elements 16 step to 16 step + 15.
template <int D>
GPU_DEVICE void load_a(uint32_t (&a)[4], const bf16* tile, int row0, uint32_t step) {
  const uint32_t l = uint32_t(lane());
  ldmatrix_x4(a, chunk_of<D>(tile, row0, l % 16, 2 * step + l / 16));
}
// A fragment: columns 16 column16 to 16 column16 + 15 of the tile as its rows; rows row0 to row0 +
// 15 of the tile along K.
template <int D>
GPU_DEVICE void load_a_columns(uint32_t (&a)[4], const bf16* tile, int row0, uint32_t column16) {
  const uint32_t l = uint32_t(lane());
  ldmatrix_x4_trans(a, chunk_of<D>(tile, row0, l / 16 * 8 + l % 8, 2 * column16 + l / 8 % 2));
}
// Two B fragments, whose columns are rows row0 to row0 + 15 of the tile; elements 16 step to 16
// step + 15.
template <int D>
GPU_DEVICE void load_b_rows(uint32_t (&b)[4], const bf16* tile, int row0, uint32_t step) {
  const uint32_t l = uint32_t(lane());
  ldmatrix_x4(b, chunk_of<D>(tile, row0, l / 16 * 8 + l % 8, 2 * step + l / 8 % 2));
}
// Two B fragments, whose columns are columns of the tile, from 16 column16 on; rows row0 to row0 +
// 15.
template <int D>
GPU_DEVICE void load_b_columns(uint32_t (&b)[4], const bf16* tile, int row0, uint32_t column16) {
  const uint32_t l = uint32_t(lane());
  ldmatrix_x4_trans(b, chunk_of<D>(tile, row0, l % 16, 2 * column16 + l / 16));
}

GPU_DEVICE void multiply_two(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[4],
                             const uint32_t (&b)[4]) {
  const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
  mma_m16n8k16(d0, a, low);
  mma_m16n8k16(d1, a, high);
}

}  // namespace assay::gpu
