// The grouped products in bf16 by mma.sync, for GPUs without wgmma: tiles, copies and main loop.
// The roles of a, b and c are those of ops/grouped/gpu_mainloop.h; work list and epilogues are the
// same.
//
// A block owns tiles of 128 x 128 elements of c; with SwiGLU 128 x 128 of the gate and of up. Each
// of its 8 warps owns 32 rows and 64 columns (of both). A stage holds 32 of the K index of a and of
// b, copied by cp.async of all threads: as rows of 32 elements along K, or as 32 rows of 128
// elements along M or N, in the order that the matrix has in memory.
#pragma once

#include "cuda/gpu.h"
#include "ops/gpu/fragments.h"
#include "ops/grouped/gpu_epilogue.h"
#include "ops/grouped/gpu_mainloop.h"
#include "ops/grouped/gpu_work_list.h"

namespace assay::gpu {

constexpr int kMmaThreads = 256;
constexpr int kMmaSide = 128;  // rows, and columns, of a tile
static_assert(kMmaSide == kGroupedTileM, "the work list cuts rows at kGroupedTileM");
constexpr int kMmaTileK = 32;
constexpr int kMmaRowTiles = 2;  // of 16 rows, of a warp
constexpr int kMmaStages = 3;

struct GroupedMmaArgs {
  const bf16* a;  // forward: x (rows, k)      dgrad: dy (A, k)        wgrad: dy (A, m)
  const bf16* b;  // forward: W (E, n, k)      dgrad: W (E, k, n)      wgrad: x (rows, n)
  // The others are those of GroupedTileArgs; with SwiGLU W is (E, 2 n, k).
  void* c;
  bf16* h = nullptr;
  const bf16* gate_up = nullptr;
  const int32_t* row = nullptr;  // of x; null: in order
  GroupedParts work;
  int m = 0;
  int n;
  int k = 0;
  int adds = 1;  // wgrad: 0 if the sums replace dweight
  ProductScale scale = {};
  float* amax = nullptr;
};

template <GroupedKind Kind_, GroupedEnd End_ = GroupedEnd::kPlain>
struct GroupedMmaTile {
  static constexpr GroupedKind Kind = Kind_;
  static constexpr GroupedEnd End = End_;
  static constexpr bool swiglu = End == GroupedEnd::kSwiglu;
  static constexpr int columns = kMmaSide;
  static constexpr int tile_k = kMmaTileK;
  static constexpr int b_parts = swiglu ? 2 : 1;  // gate and up
  // Whether rows of the operand in memory run along K.
  static constexpr bool a_along_k = Kind != GroupedKind::kWgrad;
  static constexpr bool b_along_k = Kind == GroupedKind::kForward;
  static constexpr int part = kMmaSide * kMmaTileK;  // elements of a, and of a part of b
  static constexpr int stage = (1 + b_parts) * part;
  static constexpr int shared_bytes = kMmaStages * stage * int(sizeof(bf16));
  static constexpr int n_tiles = 8 * b_parts;  // of 8 columns, of a warp
  // Blocks per SM, by registers: the sums of gate and up take 128 per thread, and the gradient of
  // SwiGLU a few more than half of them all.
  static constexpr int resident = End == GroupedEnd::kPlain ? 2 : 1;
  static_assert(stage * 2 >= kGroupedStagingBytes);  // an epilogue reuses a stage
};

// --- Copies: 16 bytes each, two of a thread for each part of a stage. Elements outside the segment
// or the matrix become zero.

// Rows of the matrix in memory that this thread's copies to a part of a stage read.
struct GroupedMmaCopy {
  static constexpr int kCount = kMmaSide * kMmaTileK / 8 / kMmaThreads;
  int row[kCount];  // -1: outside
};

// Rows along K: copy i of a thread is of row thread / 4 + 64 i, elements 8 (thread % 4) and on.
GPU_DEVICE int along_k_row(int i) {
  return int(threadIdx.x) / 4 + i * (kMmaThreads / 4);
}
// Rows along M or N: of row thread / 16 + 16 i, elements 8 (thread % 16) and on.
GPU_DEVICE int across_row(int i) {
  return int(threadIdx.x) / 16 + i * (kMmaThreads / 16);
}

// Columns `at` and on of a matrix that has `width`.
GPU_DEVICE void copy_along_k(bf16* part, const bf16* matrix, int width, const GroupedMmaCopy& copy,
                             int at) {
  const int chunk = int(threadIdx.x) % 4, column = at + chunk * 8;
#pragma unroll
  for (int i = 0; i < GroupedMmaCopy::kCount; ++i) {
    const bool inside = copy.row[i] >= 0 && column < width;
    cp_async16(chunk_of<kMmaTileK>(part, 0, uint32_t(along_k_row(i)), uint32_t(chunk)),
               matrix + (inside ? int64_t{copy.row[i]} * width + column : 0), inside ? 16 : 0);
  }
}
GPU_DEVICE void copy_across(bf16* part, const bf16* matrix, int width, const GroupedMmaCopy& copy,
                            int at) {
  const int chunk = int(threadIdx.x) % 16, column = at + chunk * 8;
#pragma unroll
  for (int i = 0; i < GroupedMmaCopy::kCount; ++i) {
    const bool inside = copy.row[i] >= 0 && column < width;
    cp_async16(chunk_of<kMmaSide>(part, 0, uint32_t(across_row(i)), uint32_t(chunk)),
               matrix + (inside ? int64_t{copy.row[i]} * width + column : 0), inside ? 16 : 0);
  }
}

// The copies of one tile, stage after stage.
template <typename Tile>
struct GroupedMmaCopies {
  const GroupedMmaArgs& g;
  const GroupedAt& at;
  GroupedMmaCopy a, b[Tile::b_parts];  // rows; in wgrad those of the next stage

  // Row of x of assignment `r` of the part; -1 past its end.
  GPU_DEVICE int row_of_x(int r) const {
    if (r >= at.part.rows) return -1;
    return g.row ? g.row[at.part.begin + r] : at.part.begin + r;
  }

  GPU_DEVICE void begin() {
#pragma unroll
    for (int i = 0; i < GroupedMmaCopy::kCount; ++i) {
      const int r = along_k_row(i);
      if constexpr (Tile::Kind == GroupedKind::kForward) {
        a.row[i] = row_of_x(r);
        for (int part = 0; part < Tile::b_parts; ++part) {
          const int line = (at.part.expert * Tile::b_parts + part) * g.n + at.n + r;
          b[part].row[i] = at.n + r < g.n ? line : -1;
        }
      } else if constexpr (Tile::Kind == GroupedKind::kDgrad) {
        a.row[i] = r < at.part.rows ? at.part.begin + r : -1;
      }
    }
    if constexpr (Tile::Kind == GroupedKind::kWgrad) look_up(0);
  }
  // wgrad: rows of the tokens from `token` on.
  GPU_DEVICE void look_up(int token) {
#pragma unroll
    for (int i = 0; i < GroupedMmaCopy::kCount; ++i) {
      const int r = token + across_row(i);
      a.row[i] = r < at.part.rows ? at.part.begin + r : -1;
      b[0].row[i] = row_of_x(r);
    }
  }

  GPU_DEVICE void copy_stage(bf16* stage, int k_tile) {
    const int k = k_tile * kMmaTileK;
    bf16* const to_b = stage + Tile::part;
    if constexpr (Tile::Kind == GroupedKind::kWgrad) {
      copy_across(stage, g.a, g.m, a, at.m);
      copy_across(to_b, g.b, g.n, b[0], at.n);
      look_up(k + kMmaTileK);
    } else {
      copy_along_k(stage, g.a, g.k, a, k);
      if constexpr (Tile::Kind == GroupedKind::kForward) {
        for (int part = 0; part < Tile::b_parts; ++part)
          copy_along_k(to_b + part * Tile::part, g.b, g.k, b[part], k);
      } else {
#pragma unroll
        for (int i = 0; i < GroupedMmaCopy::kCount; ++i) {
          const int line = k + across_row(i);
          b[0].row[i] = line < g.k ? at.part.expert * g.k + line : -1;
        }
        copy_across(to_b, g.b, g.n, b[0], at.n);
      }
    }
  }
};

// --- Products.

struct GroupedMmaWarp {
  int row, column;  // first row and column of the warp in the tile
};
GPU_DEVICE GroupedMmaWarp mma_warp() {
  return {warp() / 2 * 16 * kMmaRowTiles, warp() % 2 * kGroupedSlab};
}

template <typename Tile>
using GroupedMmaSums = float[kMmaRowTiles][Tile::n_tiles][4];

// sums += a b of one stage.
template <typename Tile>
GPU_DEVICE void multiply_stage(GroupedMmaSums<Tile>& sums, const bf16* stage,
                               const GroupedMmaWarp& mine) {
  const bf16* const b_parts = stage + Tile::part;
#pragma unroll
  for (int step = 0; step < kMmaTileK / 16; ++step) {
    uint32_t a[kMmaRowTiles][4];
#pragma unroll
    for (int m = 0; m < kMmaRowTiles; ++m) {
      const int row = mine.row + 16 * m;
      if constexpr (Tile::a_along_k) {
        load_a<kMmaTileK>(a[m], stage, row, uint32_t(step));
      } else {
        load_a_columns<kMmaSide>(a[m], stage, 16 * step, uint32_t(row / 16));
      }
    }
#pragma unroll
    for (int n = 0; n < Tile::n_tiles; n += 2) {
      const bf16* const part = b_parts + n / 8 * Tile::part;
      const int column = mine.column + n % 8 * 8;
      uint32_t b[4];
      if constexpr (Tile::b_along_k) {
        load_b_rows<kMmaTileK>(b, part, column, uint32_t(step));
      } else {
        load_b_columns<kMmaSide>(b, part, 16 * step, uint32_t(column / 16));
      }
#pragma unroll
      for (int m = 0; m < kMmaRowTiles; ++m) multiply_two(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}

// The sums of a tile. While a stage is multiplied the next ones arrive.
template <typename Tile>
GPU_DEVICE void multiply_tile(GroupedMmaSums<Tile>& sums, const GroupedMmaArgs& g,
                              const GroupedAt& at, bf16* shared, const GroupedMmaWarp& mine) {
  GroupedMmaCopies<Tile> copies{g, at, {}, {}};
  const auto copy = [&](int k) {
    if (k < at.k_tiles) copies.copy_stage(shared + k % kMmaStages * Tile::stage, k);
    cp_async_commit();
  };
#pragma unroll
  for (int m = 0; m < kMmaRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Tile::n_tiles; ++n)
      sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
  }

  // Prologue.
  copies.begin();
  for (int k = 0; k < kMmaStages - 1; ++k) copy(k);

  // Main loop.
  const bool active = mine.row < (Tile::Kind == GroupedKind::kWgrad ? g.m - at.m : at.part.rows);
  for (int k = 0; k < at.k_tiles; ++k) {
    cp_async_wait<kMmaStages - 2>();
    sync_block();  // this stage has landed, and the one before it is free
    copy(k + kMmaStages - 1);
    if (active) multiply_stage<Tile>(sums, shared + k % kMmaStages * Tile::stage, mine);
  }
  cp_async_wait<0>();
}

// Element i of a row tile's columns as the epilogues take them.
template <int Tiles>
GPU_DEVICE void flatten(float (&flat)[Tiles * 4], const float (&sums)[Tiles][4]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) flat[4 * n + i] = sums[n][i];
  }
}

// SwiGLU gradient of 16 rows and 64 columns, whose dh are those of `block` of acc. Gate and up are
// read one after the other: both at once take more registers than there are.
template <int Numbers, typename Args>
GPU_DEVICE void store_gradient(const float (&acc)[Numbers], unsigned char* staging, const Args& g,
                               int64_t row, int rows, int column, int block = 0) {
  const int width = 2 * g.n, columns = g.n - column;
  const int64_t at = row * width + column;
  bf16* const c = static_cast<bf16*>(g.c) + at;
  GroupedBlock gate = block_of(staging, fetch_lines(g.gate_up + at, rows, columns, width));
  GroupedBlock up = block_of(staging, fetch_lines(g.gate_up + at + g.n, rows, columns, width));
  differentiate(gate, up, acc, block);
  AmaxAccumulator most{g.amax};
  store_block(staging, gate, c, rows, columns, width, most);
  store_block(staging, up, c + g.n, rows, columns, width, most);
  most.raise_of_warp<bf16>();
}

}  // namespace assay::gpu
