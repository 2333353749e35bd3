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

// b passes by, so that it does not take the place of a in the L1 cache.
[[gnu::always_inline]] inline void load_first_of_b(const std::byte* b) {
  _tile_stream_loadd(6, b, 4 * kBlock);
}
[[gnu::always_inline]] inline void load_second_of_b(const std::byte* b) {
  _tile_stream_loadd(7, b + 4 * kTile, 4 * kBlock);
}

// The products of `chunks` chunks are added to the tiles 0-3; between() is called after each.
template <typename Between>
[[gnu::always_inline]] inline void add_chunks(const WholeBlocks& x, int64_t chunks,
                                              const std::byte* a, const std::byte* b,
                                              Between&& between) {
  for (int64_t i = 0; i < chunks; ++i, a += x.a_chunk, b += kChunkBytesOfB) {
    load_first_of_b(b);
    _tile_loadd(4, a, x.a_stride);
    _tile_dpbf16ps(0, 4, 6);
    load_second_of_b(b);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + x.a_tile, x.a_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    between();
  }
}

[[gnu::always_inline]] inline void compiler_barrier() {
  asm volatile("" ::: "memory");  // compilers assume that tile loads do not read memory
}

// The 32 x 32 sums of a block in memory, `stride` bytes between rows.
struct SumsOfBlock {
  float* at;
  int64_t stride;

  [[gnu::always_inline]] float* below() const {
    return at + kTile * stride / int64_t{sizeof(float)};
  }
};
template <int kSum>
[[gnu::always_inline]] inline void store_sum(const SumsOfBlock& to) {
  if constexpr (kSum == 0) _tile_stored(0, to.at, to.stride);
  if constexpr (kSum == 1) _tile_stored(1, to.at + kTile, to.stride);
  if constexpr (kSum == 2) _tile_stored(2, to.below(), to.stride);
  if constexpr (kSum == 3) _tile_stored(3, to.below() + kTile, to.stride);
}
template <int kSum, bool kZero>
[[gnu::always_inline]] inline void start_sum(const SumsOfBlock& from) {
  compiler_barrier();
  if constexpr (kZero) {
    if constexpr (kSum == 0) _tile_zero(0);
    if constexpr (kSum == 1) _tile_zero(1);
    if constexpr (kSum == 2) _tile_zero(2);
    if constexpr (kSum == 3) _tile_zero(3);
  } else {
    if constexpr (kSum == 0) _tile_loadd(0, from.at, from.stride);
    if constexpr (kSum == 1) _tile_loadd(1, from.at + kTile, from.stride);
    if constexpr (kSum == 2) _tile_loadd(2, from.below(), from.stride);
    if constexpr (kSum == 3) _tile_loadd(3, from.below() + kTile, from.stride);
  }
}
template <bool kZero>
[[gnu::always_inline]] inline void start_sums(const SumsOfBlock& from) {
  start_sum<0, kZero>(from);
  start_sum<1, kZero>(from);
  start_sum<2, kZero>(from);
  start_sum<3, kZero>(from);
}
[[gnu::always_inline]] inline void store_sums(const SumsOfBlock& to) {
  compiler_barrier();
  store_sum<0>(to);
  store_sum<1>(to);
  store_sum<2>(to);
  store_sum<3>(to);
}

// From one block to the next: its sums are stored, those of the next start, and its first chunk is
// added. The unit has work while it waits for the last sums and for the next ones.
template <bool kZero>
[[gnu::always_inline]] inline void turn(const WholeBlocks& x, const SumsOfBlock& ended,
                                        const SumsOfBlock& next, const std::byte* a,
                                        const std::byte* b) {
  load_first_of_b(b);
  _tile_loadd(4, a, x.a_stride);
  store_sum<0>(ended);
  start_sum<0, kZero>(next);
  _tile_dpbf16ps(0, 4, 6);
  load_second_of_b(b);
  store_sum<1>(ended);
  start_sum<1, kZero>(next);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, a + x.a_tile, x.a_stride);
  store_sum<2>(ended);
  start_sum<2, kZero>(next);
  _tile_dpbf16ps(2, 5, 6);
  store_sum<3>(ended);
  start_sum<3, kZero>(next);
  _tile_dpbf16ps(3, 5, 7);
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

// The blocks of a product, along their rows.
class BlockWalk {
 public:
  [[gnu::always_inline]] explicit BlockWalk(const WholeBlocks& x) : x_(x), a_(x.a), b_(x.b) {}

  [[gnu::always_inline]] const std::byte* a() const { return a_; }
  [[gnu::always_inline]] const std::byte* b() const { return b_; }
  [[gnu::always_inline]] int64_t row() const { return row_; }
  [[gnu::always_inline]] int64_t col() const { return col_; }
  // False after the last block.
  [[gnu::always_inline]] bool next() {
    col_ += kBlock;
    b_ += x_.b_panel;
    if (col_ < x_.cols) return true;
    col_ = 0;
    b_ = x_.b;
    row_ += kBlock;
    a_ += kBlock / kTile * x_.a_tile;
    return row_ < x_.rows;
  }

 private:
  const WholeBlocks& x_;
  const std::byte *a_, *b_;
  int64_t row_ = 0, col_ = 0;
};

// c = or += the product, in place. Meanwhile `rows` are asked for.
template <bool kAdd>
[[gnu::noinline]] void accumulate_whole_blocks(const WholeBlocks& blocks, float* c,
                                               int64_t c_stride, NextRows rows) {
  const WholeBlocks x = blocks;  // in registers
  const auto between = [&] { rows.ask(); };
  BlockWalk at(x);
  SumsOfBlock sums{.at = c, .stride = c_stride * int64_t{sizeof(float)}};
  start_sums<!kAdd>(sums);
  add_chunks(x, 1, at.a(), at.b(), between);
  for (;;) {
    add_chunks(x, x.chunks - 1, at.a() + x.a_chunk, at.b() + kChunkBytesOfB, between);
    if (!at.next()) break;
    const SumsOfBlock next{.at = c + at.row() * c_stride + at.col(), .stride = sums.stride};
    turn<!kAdd>(x, sums, next, at.a(), at.b());
    between();
    sums = next;
  }
  store_sums(sums);
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
  NextRows rows;
  BlockWalk at(x);
  SumsOfBlock sums{.at = to.sums, .stride = kStride};
  const auto between = [&] {
    rows.ask();
    if constexpr (kLast) waiting.store_some();
  };
  const auto begin_row = [&] {
    if (!x.in_place) return;
    rows = {
        .row = at.a() + 2 * x.a_tile, .bytes = 64 * x.chunks, .stride = x.a_stride, .rows = kBlock};
  };
  const auto load_start = [&](const SumsOfBlock& of) {
    const Y* from = to.start + at.row() * c_stride + at.col();
    for (int64_t r = 0; r < kBlock; ++r) load_block_row(of.at + r * kBlock, from + r * c_stride);
  };
  const bool zero = kFirst && to.start == nullptr;
  begin_row();
  if (zero) {
    start_sums<true>(sums);
  } else {
    if (kFirst) load_start(sums);
    start_sums<false>(sums);
  }
  add_chunks(x, 1, at.a(), at.b(), between);
  for (;;) {
    add_chunks(x, x.chunks - 1, at.a() + x.a_chunk, at.b() + kChunkBytesOfB, between);
    if constexpr (kLast) waiting.store_rest();  // of the block before; its sums' place is free
    Y* const c = to.c + at.row() * c_stride + at.col();
    const bool more = at.next();
    SumsOfBlock next{.at = sums.at + kSums, .stride = kStride};
    if (kFirst && kLast && sums.at != to.sums) next.at = to.sums;
    if (!more) {
      store_sums(sums);
    } else {
      if (at.col() == 0) begin_row();
      if (zero) {
        turn<true>(x, sums, next, at.a(), at.b());
      } else {
        if (kFirst) load_start(next);
        turn<false>(x, sums, next, at.a(), at.b());
      }
    }
    if constexpr (kLast) waiting.wait(sums.at, c, c + kBlock);
    if (!more) break;
    between();
    sums = next;
  }
  if constexpr (kLast) waiting.store_rest();
}

}  // namespace assay::amx

#endif
