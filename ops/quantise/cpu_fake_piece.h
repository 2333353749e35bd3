// A piece of a copy of fake_quantise on the CPU: one tile of one band (ops/quantise/partition.h).
#pragma once

#include "base/random.h"
#include "base/view.h"
#include "ops/fake_quantise.h"
#include "ops/quantise/cpu_lanes.h"
#include "ops/quantise/partition.h"

namespace assay::fake {

using Tile = float[kHighBand][kFakeColumns];

// The place of a tile in z.
struct Piece {
  RowRange rows;
  int64_t column, columns;  // first, count
  int64_t number;           // among all pieces
  int64_t height() const { return rows.end - rows.begin; }
};

// What all pieces of a copy share.
struct CopyPlan {
  const FakeCopy& to;
  FakeWay way;
  BlockShape block;  // in rows and columns of z
  LineCoder coder;
  RandomKey key;
  int64_t draw_length;
  float s;        // S of the tensor
  int64_t tiled;  // blocks per tile
};

// Makes one piece of a copy. sums: the copy's part of a row of `partial`, or null.
void quantise_piece(const CopyPlan& plan, const Piece& p, const Tile& tile, double* sums,
                    const View<uint32_t, 1>& not_finite);

}  // namespace assay::fake
