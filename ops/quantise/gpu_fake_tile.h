// The tile that a block of the fake_quantise kernel holds in shared memory, and the units that its
// threads take from it: 16 adjacent elements of a line of a copy.
#pragma once

#include "cuda/gpu.h"
#include "ops/fake_quantise.h"
#include "ops/gpu/elements.h"
#include "ops/quantise/hadamard16.h"
#include "ops/quantise/partition.h"

namespace assay::gpu::fake {

inline constexpr int kThreads = 256;
inline constexpr int kColumns = int(kFakeColumns);
inline constexpr int kUnit = 16;                  // elements of a unit
inline constexpr int kAcross = kColumns / kUnit;  // units per row
// Elements from one row of the tile to the next; the padding moves the next row to other banks.
inline constexpr int kPitch = kColumns + 8;
static_assert(kUnit == kHadamard && kColumns % kWarp == 0);

template <typename X, int kBand>
struct Tile {
  static constexpr int kUnits = kBand * kAcross;
  X x[kBand][kPitch];
  uint32_t most[kUnits];  // largest magnitude per unit of the copy
  uint32_t scratch[kWarp];
  double sums[kWarp];
};

// First element of a unit in the tile. A row copy has units of 1 x 16, eight lanes per row; a
// column copy has units of 16 x 1, 32 columns per warp.
struct Unit {
  int row, column;
};
template <FakeWay kWay>
GPU_DEVICE Unit unit_of(int i) {
  if constexpr (kWay == FakeWay::kRow) return {i / kAcross, i % kAcross * kUnit};
  return {i / kColumns * kUnit, i % kColumns};
}
template <FakeWay kWay>
GPU_DEVICE int unit_at(int row, int column) {
  if constexpr (kWay == FakeWay::kRow) return row * kAcross + column / kUnit;
  return row / kUnit * kColumns + column;
}

// The piece of z that the tile holds: rows, first column, and its number among all pieces.
struct Piece {
  int64_t begin, column, number;
  int height;
};

template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE void read_unit(float (&v)[kUnit], const FakeQuantise<X>& a, const Piece& p,
                          const Tile<X, kBand>& tile, Unit u) {
  if constexpr (kWay == FakeWay::kRow) {
    load_floats(v, &tile.x[u.row][u.column]);
  } else {
    for (int i = 0; i < kUnit; ++i) v[i] = float(tile.x[u.row + i][u.column]);
    const int whole = u.row + kUnit <= p.height;
    if (whole && a.rotation == ColumnRotation::kHadamard16) hadamard16(v, a.signs);
  }
}

// Largest magnitude of the block that contains the unit. `whole` is the maximum of the tile, which
// is a single block if blocks are 128 x 128.
template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE uint32_t block_most(const BlockShape& block, const Tile<X, kBand>& tile, Unit u,
                               uint32_t whole) {
  if (block.lines == kHighBand && block.columns == kColumns) return whole;
  constexpr int kRows = kWay == FakeWay::kRow ? 1 : kUnit, kWide = kUnit / kRows;
  const int lines = int(block.lines), columns = int(block.columns);
  const int first_row = u.row / lines * lines, first_column = u.column / columns * columns;
  uint32_t most = 0;
  for (int r = first_row; r < first_row + lines; r += kRows) {
    for (int c = first_column; c < first_column + columns; c += kWide) {
      const uint32_t bits = tile.most[unit_at<kWay>(r, c)];
      most = most < bits ? bits : most;
    }
  }
  return most;
}

// Index of the scale of the unit's block in FakeCopy::scales.
GPU_DEVICE int64_t scale_at(const Piece& p, const BlockShape& block, int band, Unit u) {
  const int64_t across = kColumns / block.columns;
  return p.number * blocks_of_tile(block, band) + u.row / block.lines * across +
         u.column / block.columns;
}

}  // namespace assay::gpu::fake
