// Products of whole blocks of 32 x 32 sums: the common case of ops/cpu_gemm/amx.cpp, in loops that
// keep every address in a register. Rows of `a` are outside, columns of b inside: 32 rows of a pass
// stay in the L1 cache, the columns of b come from the L2 cache.
#pragma once

#include "ops/cpu_gemm/amx_rows.h"

#if ASSAY_AMX

namespace assay::amx {

constexpr int64_t kChunkBytesOfB = 4 * kTile * kBlock;  // 16 steps of 32 columns, contiguous

// Rows and columns are multiples of 32.
struct WholeBlocks {
  const std::byte* a;  // in  the first tile
  int64_t a_stride;    //     bytes between rows
  int64_t a_tile;      //     to the tile 16 rows below
  int64_t a_chunk;     //     to the tile of the next 16 steps
  const std::byte* b;  // in  32 columns
  int64_t b_panel;     //     bytes to the next 32 columns
  int64_t chunks;      // of 16 steps
  int64_t rows, cols;
  bool in_place = false;  // the rows of a are where the op before wrote them
};

// The products of one block are added to the tiles 0-3; between() is called after each chunk.
template <typename Between>
[[gnu::always_inline]] inline void add_chunks(const WholeBlocks& x, const std::byte* a,
                                              const std::byte* b, Between&& between) {
  constexpr int64_t kStride = 4 * kBlock;
  for (int64_t i = 0; i < x.chunks; ++i, a += x.a_chunk, b += kChunkBytesOfB) {
    _tile_stream_loadd(6, b, kStride);
    _tile_loadd(4, a, x.a_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, b + 4 * kTile, kStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + x.a_tile, x.a_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    between();
  }
}
// stride: bytes between rows of sums.
[[gnu::always_inline]] inline void load_sums(const float* sums, int64_t stride) {
  const float* down = sums + kTile * stride / int64_t{sizeof(float)};
  asm volatile("" ::: "memory");  // compilers assume that tile loads do not read memory
  _tile_loadd(0, sums, stride);
  _tile_loadd(1, sums + kTile, stride);
  _tile_loadd(2, down, stride);
  _tile_loadd(3, down + kTile, stride);
}
[[gnu::always_inline]] inline void store_sums(float* sums, int64_t stride) {
  float* down = sums + kTile * stride / int64_t{sizeof(float)};
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + kTile, stride);
  _tile_stored(2, down, stride);
  _tile_stored(3, down + kTile, stride);
}
[[gnu::always_inline]] inline void zero_sums() {
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Asks for rows into the L2 cache, a few lines at a time.
struct NextRows {
  const std::byte* row = nullptr;
  int64_t bytes = 0;   // of a row
  int64_t stride = 0;  // bytes between rows
  int64_t rows = 0;    // that are left
  int64_t at = 0;      // of the row

  [[gnu::always_inline]] void ask() {
    if (rows <= 0) return;
#pragma GCC unroll 4
    for (int64_t line = 0; line < 4; ++line) __builtin_prefetch(row + at + 64 * line, 0, 2);
    at += 4 * 64;
    if (at < bytes) return;
    at = 0;
    row += stride;
    --rows;
  }
};

// c = or += the product, in place. Meanwhile `next` are asked for.
template <bool kAdd>
[[gnu::noinline]] void accumulate_whole_blocks(const WholeBlocks& blocks, float* c,
                                               int64_t c_stride, NextRows next) {
  const WholeBlocks x = blocks;  // in registers
  const int64_t stride = c_stride * int64_t{sizeof(float)};
  for (int64_t i = 0; i < x.rows; i += kBlock) {
    const std::byte* a = x.a + i / kTile * x.a_tile;
    const std::byte* b = x.b;
    float* sums = c + i * c_stride;
    for (int64_t j = 0; j < x.cols; j += kBlock, b += x.b_panel, sums += kBlock) {
      if constexpr (kAdd) {
        load_sums(sums, stride);
      } else {
        zero_sums();
      }
      add_chunks(x, a, b, [&] { next.ask(); });
      store_sums(sums, stride);
    }
  }
}

// Sums of a block that are still to be stored to c: a few rows at a time, while the unit computes
// the next block. Meanwhile the lines of c that the next one is stored to are asked for; without
// that, stores that miss the caches hold up the tile loads behind them.
template <typename Y>
class WaitingBlock {
 public:
  explicit WaitingBlock(int64_t c_stride) : c_stride_(c_stride) {}

  [[gnu::always_inline]] void store_some() {
    if (rows_ == 0) return;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTogether; ++r) {
      store_block_row(c_ + r * c_stride_, sums_ + r * kBlock);
      __builtin_prefetch(next_ + r * c_stride_, 1);
    }
    c_ += kTogether * c_stride_;
    next_ += kTogether * c_stride_;
    sums_ += kTogether * kBlock;
    rows_ -= kTogether;
  }
  void store_rest() {
    while (rows_ > 0) store_some();
  }
  // next: where the block after this one is stored.
  void wait(const float* sums, Y* c, const Y* next) {
    sums_ = sums;
    c_ = c;
    next_ = next;
    rows_ = kBlock;
  }

 private:
  static constexpr int64_t kTogether = 4;
  const int64_t c_stride_;
  const float* sums_ = nullptr;  // kBlock apart
  Y* c_ = nullptr;
  const Y* next_ = nullptr;
  int64_t rows_ = 0;  // that are left
};

// Where multiply_whole_blocks() starts and ends. The sums of a block are 32 x 32 floats, block
// after block; if the pass is the first and the last, those of two blocks.
template <typename Y>
struct Sums {
  float* sums;     // acc
  const Y* start;  // in   (rows, cols)   as c, read by the first pass; null: 0
  Y* c;            // out  (rows, cols)   written by the last pass
  int64_t c_stride;
};

template <bool kFirst, bool kLast, typename Y>
[[gnu::noinline]] void multiply_whole_blocks(const WholeBlocks& blocks, const Sums<Y>& to) {
  constexpr int64_t kSums = kBlock * kBlock, kStride = 4 * kBlock;
  const WholeBlocks x = blocks;  // in registers
  const int64_t c_stride = to.c_stride;
  WaitingBlock<Y> waiting(c_stride);
  NextRows next;
  float* sums = to.sums;
  for (int64_t i = 0; i < x.rows; i += kBlock) {
    const std::byte* a = x.a + i / kTile * x.a_tile;
    const std::byte* b = x.b;
    if (x.in_place) {
      next = {
          .row = a + 2 * x.a_tile, .bytes = 64 * x.chunks, .stride = x.a_stride, .rows = kBlock};
    }
    for (int64_t j = 0; j < x.cols; j += kBlock, b += x.b_panel) {
      const int64_t at = i * c_stride + j;
      if (!kFirst) {
        load_sums(sums, kStride);
      } else if (to.start != nullptr) {
        for (int64_t r = 0; r < kBlock; ++r) {
          load_block_row(sums + r * kBlock, to.start + at + r * c_stride);
        }
        load_sums(sums, kStride);
      } else {
        zero_sums();
      }
      add_chunks(x, a, b, [&] {
        next.ask();
        if constexpr (kLast) waiting.store_some();
      });
      store_sums(sums, kStride);
      if constexpr (kLast) {
        waiting.store_rest();
        waiting.wait(sums, to.c + at, to.c + at + kBlock);
      }
      if constexpr (kFirst && kLast) {
        sums = sums == to.sums ? to.sums + kSums : to.sums;
      } else {
        sums += kSums;
      }
    }
  }
  waiting.store_rest();
}

}  // namespace assay::amx

#endif
