// Epilogues of ops/grouped/gpu_mainloop.h and gpu_mma.h: store a tile of c, with SwiGLU or its
// gradient. Args: GroupedTileArgs or GroupedMmaArgs.
#pragma once

#include "cuda/gpu.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/swiglu.h"
#include "ops/grouped/gpu_mainloop.h"

namespace assay::gpu {

// A warp's 16 rows x 64 columns of bf16 as the products leave them (cuda/kernel/accumulators.h):
// pair 4 i + j of a lane is in matrix j of columns 16 i to 16 i + 15, row lane / 4 (+ 8 if j is
// odd), columns 2 (lane % 4) (+ 8 if j > 1) and the next.
struct GroupedBlock {
  uint32_t pair[16];
};
// The same in row order: this lane's 16-byte pieces of rows lane / 8 + 4 i.
struct GroupedLines {
  Vec<uint32_t, 4> piece[4];
};

template <int Numbers>
GPU_DEVICE GroupedBlock rounded_block(const float (&acc)[Numbers], int block) {
  GroupedBlock b;
#pragma unroll
  for (int p = 0; p < 16; ++p)
    b.pair[p] = pack_bf16(acc[block * 32 + 2 * p], acc[block * 32 + 2 * p + 1]);
  return b;
}

// Layout conversion through the warp's own 2 KiB of shared memory. The index of a 16-byte piece is
// XORed with the row: no bank conflicts in either direction, and 8 lanes read or write 128 adjacent
// bytes of global memory. `to` and `from`: first element of the block; `rows` and `columns`:
// remaining up to the end of the segment and of the row. Elements past them are not written, and
// read as zero.
GPU_DEVICE unsigned char* staged_matrix(unsigned char* staging, int i) {
  const int row = lane() % 16;
  return staging + row * 128 + ((2 * i + lane() / 16) ^ row % 8) * 16;
}
GPU_DEVICE uint32_t* staged_piece(unsigned char* staging, int i) {
  const int row = lane() / 8 + 4 * i;
  return reinterpret_cast<uint32_t*>(staging + row * 128 + (lane() % 8 ^ row % 8) * 16);
}
GPU_DEVICE void stage_block(unsigned char* staging, const GroupedBlock& b) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t four[4] = {b.pair[4 * i], b.pair[4 * i + 1], b.pair[4 * i + 2],
                              b.pair[4 * i + 3]};
    stmatrix_x4(staged_matrix(staging, i), four);
  }
}
GPU_DEVICE void store_block(unsigned char* staging, const GroupedBlock& b, bf16* to, int rows,
                            int columns, int width, AmaxAccumulator& most) {
  stage_block(staging, b);
  sync_warp();
  const int row = lane() / 8, column = lane() % 8 * 8;
  bf16* line = to + int64_t{row} * width + column;
#pragma unroll
  for (int i = 0; i < 4; ++i, line += 4 * width) {
    const auto piece = load_vec<4>(staged_piece(staging, i));
    if (row + 4 * i < rows && column < columns) {
      store_vec(reinterpret_cast<uint32_t*>(line), piece);
      most.take(piece);
    }
  }
  sync_warp();
}
GPU_DEVICE void store_block(unsigned char* staging, const GroupedBlock& b, bf16* to, int rows,
                            int columns, int width) {
  AmaxAccumulator no_amax{nullptr};
  store_block(staging, b, to, rows, columns, width, no_amax);
}
GPU_DEVICE GroupedLines fetch_lines(const bf16* from, int rows, int columns, int width) {
  GroupedLines lines = {};
  const int row = lane() / 8, column = lane() % 8 * 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + 4 * i < rows && column < columns) {
      lines.piece[i] = load_vec<4>(
          reinterpret_cast<const uint32_t*>(from + int64_t{row + 4 * i} * width + column));
    }
  }
  return lines;
}
GPU_DEVICE GroupedBlock block_of(unsigned char* staging, const GroupedLines& lines) {
#pragma unroll
  for (int i = 0; i < 4; ++i) store_vec(staged_piece(staging, i), lines.piece[i]);
  sync_warp();
  GroupedBlock b;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t four[4];
    ldmatrix_x4(four, staged_matrix(staging, i));
    for (int j = 0; j < 4; ++j) b.pair[4 * i + j] = four[j];
  }
  sync_warp();
  return b;
}

// --- Epilogues. row: the warp's first assignment; rows: how many of its 16 exist, possibly < 1;
// column: the first of the tile.

// Plain: rounds c and stores it.
template <int N, typename Args>
GPU_DEVICE void store_rows(const float (&acc)[N / 2], unsigned char* staging, const Args& g,
                           int64_t row, int rows, int column) {
  bf16* const c = static_cast<bf16*>(g.c) + row * g.n + column;
#pragma unroll
  for (int block = 0; block < N / kGroupedSlab; ++block) {
    const int at = block * kGroupedSlab;
    store_block(staging, rounded_block(acc, block), c + at, rows, g.n - column - at, g.n);
  }
}

// Plain, by TMA, whose swizzle is the order of pieces above. Lane 0 stores, and nobody waits before
// a buffer is used again. A warp at the end of a segment stores as above: a box has 16 rows.
template <typename Tile>
GPU_DEVICE void send_rows_in_bulk(const float (&acc)[Tile::N / 2], unsigned char* staging,
                                  const GroupedTileArgs& g, int64_t row, int rows, int column) {
  if (lane() == 0) bulk_wait_read<0>();  // of the last tile
  sync_warp();
  if (rows < 16) return store_rows<Tile::N>(acc, staging, g, row, rows, column);
#pragma unroll
  for (int block = 0; block < Tile::N / kGroupedSlab; ++block) {
    const int at = column + block * kGroupedSlab;
    if (at >= g.n) continue;
    unsigned char* const buffer = staging + block % Tile::store_buffers * 2048;
    if (block >= Tile::store_buffers) {
      if (lane() == 0) bulk_wait_read<Tile::store_buffers - 1>();
      sync_warp();
    }
    stage_block(buffer, rounded_block(acc, block));
    fence_proxy_async();
    sync_warp();
    if (lane() == 0) {
      tma_store(&g.c_map, buffer, at, int(row));
      bulk_commit();
    }
  }
}

// SwiGLU. acc: N/2 columns of the gate, then those of up. h is computed from the rounded values, as
// backward will see them.
template <int N, typename Args>
GPU_DEVICE void store_swiglu(const float (&acc)[N / 2], unsigned char* staging, const Args& g,
                             int64_t row, int rows, int column) {
  constexpr int kBlocks = N / 2 / kGroupedSlab;
  const int width = 2 * g.n;
  bf16* const gate_up = static_cast<bf16*>(g.c) + row * width + column;
  bf16* const h = g.h + row * g.n + column;
  AmaxAccumulator most{g.amax};
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int at = block * kGroupedSlab, columns = g.n - column - at;

    // Gate and up.
    GroupedBlock gate = rounded_block(acc, block);
    const GroupedBlock up = rounded_block(acc, kBlocks + block);
    store_block(staging, gate, gate_up + at, rows, columns, width);
    store_block(staging, up, gate_up + g.n + at, rows, columns, width);

    // h.
#pragma unroll
    for (int p = 0; p < 16; ++p) {
      gate.pair[p] = pack_bf16(swiglu<bf16>(unpack_low(gate.pair[p]), unpack_low(up.pair[p])),
                               swiglu<bf16>(unpack_high(gate.pair[p]), unpack_high(up.pair[p])));
    }
    store_block(staging, gate, h + at, rows, columns, g.n, most);
  }
  most.raise_of_warp<bf16>();
}

// Gate and up for 64 columns of dh.
struct GroupedGateUp {
  GroupedLines gate, up;
};
GPU_DEVICE GroupedGateUp fetch_gate_up(const GroupedTileArgs& g, int64_t row, int rows,
                                       int column) {
  const bf16* const from = g.gate_up + row * 2 * g.n + column;
  return {fetch_lines(from, rows, g.n - column, 2 * g.n),
          fetch_lines(from + g.n, rows, g.n - column, 2 * g.n)};
}
// Gate and up become their gradients; acc: dh, not rounded, of which this is 64 columns.
template <int Numbers>
GPU_DEVICE void differentiate(GroupedBlock& gate, GroupedBlock& up, const float (&acc)[Numbers],
                              int block) {
#pragma unroll
  for (int p = 0; p < 16; ++p) {
    const int d = block * 32 + 2 * p;
    const auto low = swiglu_slopes<bf16>(unpack_low(gate.pair[p]), unpack_low(up.pair[p]));
    const auto high = swiglu_slopes<bf16>(unpack_high(gate.pair[p]), unpack_high(up.pair[p]));
    gate.pair[p] = pack_bf16(acc[d] * low.gate, acc[d + 1] * high.gate);
    up.pair[p] = pack_bf16(acc[d] * low.up, acc[d + 1] * high.up);
  }
}
// SwiGLU gradient. `next`: gate and up of the first 64 columns, read before
// the main loop; the next 64 are read while the current ones are processed.
template <int N>
GPU_DEVICE void store_dswiglu(const float (&acc)[N / 2], GroupedGateUp next, unsigned char* staging,
                              const GroupedTileArgs& g, int64_t row, int rows, int column) {
  constexpr int kBlocks = N / kGroupedSlab;
  const int width = 2 * g.n;
  bf16* const c = static_cast<bf16*>(g.c) + row * width + column;
  AmaxAccumulator most{g.amax};
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int at = block * kGroupedSlab;

    // Gradients of gate and up.
    GroupedBlock gate = block_of(staging, next.gate), up = block_of(staging, next.up);
    if (block + 1 < kBlocks) next = fetch_gate_up(g, row, rows, column + at + kGroupedSlab);
    differentiate(gate, up, acc, block);
    store_block(staging, gate, c + at, rows, g.n - column - at, width, most);
    store_block(staging, up, c + g.n + at, rows, g.n - column - at, width, most);
  }
  most.raise_of_warp<bf16>();
}

// wgrad: sums of `rows` rows and all columns up to `width` into c (rows, width), from this warp's
// first row and column `column` on.

// c += the sums, or c = them if adds is 0. 16 reads of 8 bytes are in flight; four lanes cover a
// sector.
template <int N>
GPU_DEVICE void read_add_write_rows(const float (&acc)[N / 2], int adds, float* c, int rows,
                                    int column, int width) {
  constexpr int kBatch = 8;  // steps of 8 columns
  const int at = column + accum_column(0), left = rows - accum_row(0);
  c += int64_t{accum_row(0)} * width;
#pragma unroll
  for (int base = 0; base < N / 8; base += kBatch) {
    Vec<float, 2> old[kBatch][2] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int to = at + (base + i) * 8;
        if (adds && half * 8 < left && to < width)
          old[i][half] = load_vec<2>(c + int64_t{half * 8} * width + to);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int to = at + (base + i) * 8, d = (base + i) * 4 + half * 2;
        if (half * 8 < left && to < width) {
          store_vec(c + int64_t{half * 8} * width + to,
                    Vec<float, 2>{{old[i][half][0] + acc[d], old[i][half][1] + acc[d + 1]}});
        }
      }
    }
  }
}

// Neighbouring lanes exchange pairs, so that each has 4 adjacent columns of one row: of the lane's
// first row if it is even, of that 8 below if it is odd. Nothing is read, nobody waits.
template <int N>
GPU_DEVICE void send_rows(const float (&acc)[N / 2], GroupedSum sum, float* c, int rows, int column,
                          int width) {
  const int odd = lane() % 2, row = accum_row(2 * odd);
  const int at = column + accum_column(0) / 4 * 4;
  float* const line = c + int64_t{row} * width;
#pragma unroll
  for (int i = 0; i < N / 8; ++i) {
    const float* const of_step = acc + 4 * i;
    const float first = shuffle_xor(odd ? of_step[0] : of_step[2], 1);
    const float second = shuffle_xor(odd ? of_step[1] : of_step[3], 1);
    const Vec<float, 4> four = odd ? Vec<float, 4>{{first, second, of_step[2], of_step[3]}}
                                   : Vec<float, 4>{{of_step[0], of_step[1], first, second}};
    const int to = at + 8 * i;
    if (row >= rows || to >= width) continue;
    if (sum == GroupedSum::kAdd) {
      reduce_add(line + to, four);
    } else {
      // 0 + x: the bits of an addition to zeros, also where x is -0.
      store_vec(line + to, Vec<float, 4>{{0 + four[0], 0 + four[1], 0 + four[2], 0 + four[3]}});
    }
  }
}

// Where a part's sums go, and how: those of a piece of an expert replace what is in their slot.
template <typename Args>
GPU_DEVICE float* sum_matrix(const Args& g, const GroupedPart& part) {
  const int64_t matrix = int64_t{g.m} * g.n;
  return part.slot > 0 ? g.work.partial + (part.slot - 1) * matrix
                       : static_cast<float*>(g.c) + part.expert * matrix;
}
template <typename Args>
GPU_DEVICE GroupedSum sum_way(const Args& g, const GroupedPart& part) {
  return part.slot > 0 ? GroupedSum::kStore : g.sum;
}

}  // namespace assay::gpu
