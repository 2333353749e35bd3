#include "ops/cpu_gemm/amx.h"

#include "ops/cpu_gemm/amx_tiles.h"
#include "ops/cpu_gemm/amx_whole_blocks.h"

#if ASSAY_AMX

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "ops/cpu_gemm/scale.h"
#include "ops/cpu_gemm/transpose.h"

namespace assay::panel {

namespace {

using amx::Block;
using amx::kTile;
using amx::load_rows;
using amx::multiply_block;
using amx::store_rows;
using amx::TileUnit;
constexpr int64_t kBlockCols = amx::kBlock;

// Steps per pass: 32 rows of `a` (32 KB) stay in the L1 cache, while the columns of b stream from
// the L2 past it.
constexpr int64_t kPassSteps = 256;
// Columns per pass, if there are several: their sums stay in the L2 cache.
constexpr int64_t kStripCols = 256;
// The same for weight gradients, whose sums are c: a pass of b stays in the L2 cache beside them.
constexpr int64_t kOuterStripCols = 1024;
constexpr int64_t kPackedSteps = 1024;  // steps of a block of `a` that are packed at a time
static_assert(kBlockRows % kAmxRows == 0 && kAmxRows == amx::kBlock && kAmxSteps == kTile &&
              kPassSteps % kTile == 0 && kPanelCols<bf16> == kBlockCols);

// The last steps of a panel, `count` < 16, padded to a whole tile row.
struct RestOfSteps {
  alignas(64) uint32_t words[kTile * kBlockCols];

  const std::byte* fill(const uint32_t* from, int64_t stride_words, int64_t count, int64_t width) {
    if (count == 0) return nullptr;
    std::fill_n(words, kTile * kBlockCols, 0u);
    for (int64_t s = 0; s < count; ++s) {
      std::memcpy(words + s * kBlockCols, from + s * stride_words, size_t(4 * width));
    }
    return reinterpret_cast<const std::byte*>(words);
  }
};

// The rows of a block of `a` in the layout of tiles: in place if they are whole tiles, else a copy
// padded with zeros.
template <typename Y>
class BlockRows {
 public:
  explicit BlockRows(const Product<bf16, Y>& p) : p_(p) {
    direct_ = p.row == nullptr && whole_amx_tiles(p.rows, p.k);
    CHECK(direct_ || p.rows <= kBlockRows, "matrix product: %ld rows to copy, at most %ld",
          long(p.rows), long(kBlockRows));
  }
  // Tiles of the `count` steps from `first` on.
  const std::byte* tiles(int64_t first, int64_t count) {
    if (direct_) return reinterpret_cast<const std::byte*>(p_.a + 2 * first);
    if (first < packed_first_ || first + count > packed_last_) pack(first);
    return reinterpret_cast<const std::byte*>(packed_ + (first - packed_first_));
  }
  bool in_place() const { return direct_; }
  int64_t stride() const { return direct_ ? 2 * p_.a_stride : 4 * kPackedStride; }

 private:
  // One tile more than a power of two; else all rows of a tile map to one cache set.
  static constexpr int64_t kPackedStride = kPackedSteps + kTile;

  void pack(int64_t first) {
    packed_first_ = first;
    packed_last_ = std::min(first + kPackedSteps, steps<bf16>(p_.k));
    const int64_t begin = 2 * first, end = std::min(p_.k, 2 * packed_last_);
    const size_t bytes = size_t(2 * (end - begin));
    const size_t padded = size_t(4 * round_up(packed_last_ - first, kTile));
    for (int64_t i = 0; i < round_up(p_.rows, kTile); ++i) {
      prefetch_row(i + kRowsAhead, begin, end);
      std::byte* to = reinterpret_cast<std::byte*>(packed_ + i * kPackedStride);
      size_t copied = 0;
      if (i < p_.rows) {
        const int64_t from = p_.row == nullptr ? i : p_.row[i];
        std::memcpy(to, p_.a + from * p_.a_stride + begin, bytes);
        copied = bytes;
      }
      std::memset(to + copied, 0, padded - copied);
    }
  }

  // Asks for columns of a row that is elsewhere than the ones before it.
  static constexpr int64_t kRowsAhead = 4;
  void prefetch_row(int64_t i, int64_t begin, int64_t end) const {
    if (p_.row == nullptr || i >= p_.rows) return;
    const bf16* row = p_.a + p_.row[i] * p_.a_stride;
    for (int64_t c = begin; c < end; c += 32) __builtin_prefetch(row + c, 0, 2);
  }

  const Product<bf16, Y>& p_;
  bool direct_;
  int64_t packed_first_ = 0, packed_last_ = 0;
  alignas(64) uint32_t packed_[kBlockRows * kPackedStride];
};

// Up to 32 columns of packed panels.
struct PanelColumns {
  int64_t first, count;
  int64_t width;          // count, padded to whole tiles
  const uint32_t* words;  // of the first step
  int64_t stride;         // words from a step to the next

  const uint32_t* step(int64_t s) const { return words + s * stride; }
};

// The columns from `first` on; `all` columns are in panels of `panel_words` words.
PanelColumns panel_columns(const uint32_t* panels, int64_t panel_words, int64_t all,
                           int64_t first) {
  const int64_t panel = first / kPanelCols<bf16>, begin = panel * kPanelCols<bf16>;
  const int64_t count = std::min(kBlockCols, all - first);
  return {.first = first,
          .count = count,
          .width = padded_cols(count),
          .words = panels + panel * panel_words + (first - begin),
          .stride = padded_cols(std::min(kPanelCols<bf16>, all - begin))};
}

// One call of multiply_amx().
template <typename Y>
class Multiplication {
 public:
  explicit Multiplication(const Product<bf16, Y>& p) : p_(p), a_(p) {}

  void run() {
    const int64_t passes = std::max<int64_t>(1, ceil_div(whole_, kPassSteps));
    const int64_t pass_steps = round_up(ceil_div(whole_, passes), kTile);
    const int64_t strip_cols = passes == 1 ? p_.cols : kStripCols;
    for (int64_t strip = 0; strip < p_.cols; strip += strip_cols) {
      for (int64_t pass = 0; pass < passes; ++pass) {
        const bool ends = pass == passes - 1;
        const int64_t first = pass * pass_steps, last = std::min(whole_, first + pass_steps);
        multiply_strip(strip, std::min(p_.cols, strip + strip_cols),
                       {.first = first,
                        .last = last,
                        .starts = pass == 0,
                        .ends = ends,
                        .a = a_.tiles(first, (ends ? all_steps_ : last) - first)});
      }
    }
  }

 private:
  // Steps [first, last), whole tiles of them. The pass that ends the sums also takes the steps
  // after `whole_`.
  struct Pass {
    int64_t first, last;
    bool starts, ends;
    const std::byte* a;  // the tiles of its steps
  };
  // A block of c: rows [i, i + rows).
  struct Rows {
    int64_t i, rows;
    float* sum;  // of its first row, kBlockCols apart
  };

  void multiply_strip(int64_t first_col, int64_t last_col, const Pass& pass) {
    const int64_t cols = last_col - first_col, rows = whole_rows(cols);
    int64_t block = rows * cols / (kAmxRows * kBlockCols);
    if (block > 0) {
      multiply_whole(first_col,
                     {.a = pass.a,
                      .a_stride = a_.stride(),
                      .a_tile = kTile * a_.stride(),
                      .a_chunk = 4 * kTile,
                      .b = nullptr,
                      .b_panel = 4 * kBlockCols * all_steps_,
                      .chunks = (pass.last - pass.first) / kTile,
                      .rows = rows,
                      .cols = cols,
                      .in_place = a_.in_place()},
                     pass);
    }
    for (int64_t i = rows; i < p_.rows; i += kAmxRows) {
      for (int64_t col = first_col; col < last_col; col += kBlockCols, ++block) {
        const PanelColumns b =
            panel_columns(p_.panels, kPanelCols<bf16> * all_steps_, p_.cols, col);
        const std::byte* b_rest =
            pass.ends ? rest_.fill(b.step(whole_), b.stride, all_steps_ - whole_, b.width)
                      : nullptr;
        const int64_t place = pass.starts && pass.ends ? 0 : block;  // no pass comes back to it
        const Rows r{.i = i,
                     .rows = std::min(kAmxRows, p_.rows - i),
                     .sum = sums_ + place * kAmxRows * kBlockCols};
        compute_block(pass, r, b, b_rest);
      }
    }
  }

  // The rows of whole blocks, if all steps are whole tiles and all columns whole blocks.
  int64_t whole_rows(int64_t cols) const {
    const bool whole = whole_ == all_steps_ && whole_ > 0 && cols % kBlockCols == 0 && !p_.scale;
    return whole ? p_.rows / kAmxRows * kAmxRows : 0;
  }

  void multiply_whole(int64_t first_col, amx::WholeBlocks blocks, const Pass& pass) {
    const PanelColumns b =
        panel_columns(p_.panels, kPanelCols<bf16> * all_steps_, p_.cols, first_col);
    blocks.b = reinterpret_cast<const std::byte*>(b.step(pass.first));
    const amx::Sums<Y> to{.sums = sums_,
                          .start = p_.start == nullptr ? nullptr : p_.start + first_col,
                          .c = p_.c + first_col,
                          .c_stride = p_.c_stride};
    if (pass.starts && pass.ends) return amx::multiply_whole_blocks<true, true>(blocks, to);
    if (pass.starts) return amx::multiply_whole_blocks<true, false>(blocks, to);
    if (pass.ends) return amx::multiply_whole_blocks<false, true>(blocks, to);
    amx::multiply_whole_blocks<false, false>(blocks, to);
  }

  void compute_block(const Pass& pass, const Rows& r, const PanelColumns& b,
                     const std::byte* b_rest) {
    Block x{.a = pass.a + r.i * a_.stride(),
            .a_stride = a_.stride(),
            .a_tile = kTile * a_.stride(),
            .a_chunk = 4 * kTile,
            .b = reinterpret_cast<const std::byte*>(b.step(pass.first)),
            .b_stride = 4 * b.stride,
            .b_rest = b_rest,
            .chunks = (pass.last - pass.first) / kTile,
            .start = pass.starts ? load_start(r, b) : r.sum,
            .c = r.sum,
            .start_stride = 4 * kBlockCols,
            .c_stride = 4 * kBlockCols};
    Y* const c = p_.c + r.i * p_.c_stride + b.first;
    if constexpr (std::is_same_v<Y, float>) {
      const bool whole_tiles = r.rows % kTile == 0 && b.count % kTile == 0;
      if (pass.ends && whole_tiles && !p_.scale) {
        x.c = c;
        x.c_stride = 4 * p_.c_stride;
      }
    }
    multiply_block(x, ceil_div(r.rows, kTile), b.width / kTile);
    if (!pass.ends || x.c != r.sum) return;
    if (p_.scale) return store_scaled_block(r, b);
    for (int64_t row = 0; row < r.rows; ++row) {
      store_rows(c + row * p_.c_stride, r.sum + row * kBlockCols, b.count);
    }
  }

  // Where the sums of a block start: p.start, copied to them, or null for 0. Not inlined, so that
  // the registers are left to the loops over blocks and chunks.
  [[gnu::noinline]] const float* load_start(const Rows& r, const PanelColumns& b) {
    if (p_.start == nullptr || p_.scale) return nullptr;
    for (int64_t row = 0; row < r.rows; ++row) {
      load_rows(r.sum + row * kBlockCols, p_.start + (r.i + row) * p_.c_stride + b.first, b.count);
    }
    return r.sum;
  }

  // c = start + scale sum.
  void store_scaled_block(const Rows& r, const PanelColumns& b) {
    for (int64_t row = 0; row < r.rows; ++row) {
      const int64_t at = (r.i + row) * p_.c_stride + b.first;
      store_scaled(p_.c + at, p_.start == nullptr ? nullptr : p_.start + at, *p_.scale,
                   r.sum + row * kBlockCols, b.count);
    }
  }

  const Product<bf16, Y>& p_;
  const int64_t all_steps_ = steps<bf16>(p_.k), whole_ = all_steps_ / kTile * kTile;
  BlockRows<Y> a_;
  // Sums between passes, and of blocks that wait to be stored.
  alignas(64) float sums_[kMostAmxRows * kStripCols];
  RestOfSteps rest_;
};

// One call of accumulate_amx().
class Accumulation {
 public:
  explicit Accumulation(const OuterProduct<bf16>& p) : p_(p) {}

  void run() {
    // Without a scale no bit depends on the slabs.
    const int64_t fit = kSlabWords / round_up(p_.rows, kTile) / kTile * kTile;
    // Whole blocks need whole tiles. The rows of `a` are padded with zeros, too.
    const int64_t of_k = steps<bf16>(p_.k), all_steps = p_.padded ? round_up(of_k, kTile) : of_k;
    const int64_t slabs = ceil_div(all_steps, p_.scale ? kSlabSteps : std::min(kSlabSteps, fit));
    const int64_t slab_steps = slabs == 0 ? 0 : round_up(ceil_div(all_steps, slabs), kTile);
    for (int64_t first = 0; first < all_steps; first += slab_steps) {
      const int64_t count = std::min(slab_steps, all_steps - first);
      pack_slab(first, count);
      for (int64_t col = 0; col < p_.cols; col += kOuterStripCols) {
        multiply_slab(first, count, {col, std::min(p_.cols, col + kOuterStripCols)});
      }
    }
  }

 private:
  struct Columns {
    int64_t begin, end;
  };
  // The steps of a pass in 32 columns of b.
  struct PassSteps {
    bool stores;          // c is not read
    int64_t first_chunk;  // of the slab
    int64_t chunks;
    const std::byte* b;
    const std::byte* b_rest;
  };
  // A block of c: rows [i, i + rows).
  struct Rows {
    int64_t i, rows;
    float* c;
  };

  // Packs the steps [first, first + count) of `a`.
  void pack_slab(int64_t first, int64_t count) {
    constexpr int64_t kPairs = 2 * kTile;  // rows of `a` in a tile
    chunks_ = ceil_div(count, kTile);
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const int64_t begin = 2 * (first + chunk * kTile), rows = std::min(kPairs, p_.k - begin);
      const bf16* a = p_.a + begin * p_.a_stride;
      if (2 * rows <= p_.k - begin) {  // rows of the next chunk, which no hardware foresees
        for (int64_t r = rows; r < 2 * rows; ++r) {
          for (int64_t col = 0; col < p_.rows; col += 2 * kTile)
            __builtin_prefetch(a + r * p_.a_stride + col);
        }
      }
      for (int64_t col = 0; col < p_.rows; col += kTile) {
        const int64_t cols = std::min(kTile, p_.rows - col);
        uint32_t* tile = slab_ + (col / kTile * chunks_ + chunk) * kTile * kTile;
        if (rows == kPairs && cols == kTile) {
          transpose_pairs_16(tile, kTile, reinterpret_cast<const std::byte*>(a + col),
                             2 * p_.a_stride);
          continue;
        }
        alignas(64) bf16 part[kPairs][kTile] = {};
        for (int64_t r = 0; r < rows; ++r) std::copy_n(a + r * p_.a_stride + col, cols, part[r]);
        transpose_pairs_16(tile, kTile, reinterpret_cast<const std::byte*>(part[0]), 2 * kTile);
      }
    }
  }

  // The steps [first, first + count), which are packed.
  void multiply_slab(int64_t first, int64_t count, Columns strip) {
    const int64_t pass_steps = p_.scale ? count : kPassSteps;  // a scale applies to a whole slab
    for (int64_t begin = 0; begin < count; begin += pass_steps) {
      const int64_t steps = std::min(pass_steps, count - begin), whole = steps / kTile;
      for (int64_t i = multiply_whole(first, begin, steps, count, strip); i < p_.rows;
           i += kAmxRows) {
        for (int64_t col = strip.begin; col < strip.end; col += kBlockCols) {
          const PanelColumns b = panel_columns(p_.panels, p_.panel_words, p_.cols, col);
          const uint32_t* words = b.step(first + begin);
          compute_block(
              {.stores = p_.store && first + begin == 0,
               .first_chunk = begin / kTile,
               .chunks = whole,
               .b = reinterpret_cast<const std::byte*>(words),
               .b_rest = rest_.fill(words + whole * kTile * b.stride, b.stride,
                                    steps - whole * kTile, b.width)},
              {.i = i, .rows = std::min(kAmxRows, p_.rows - i), .c = p_.c + i * p_.c_stride + col},
              b);
        }
      }
    }
  }

  // The rows of whole blocks, if the steps [first + begin, first + begin + steps) are whole tiles
  // and the columns whole blocks. Returns their number.
  int64_t multiply_whole(int64_t first, int64_t begin, int64_t steps, int64_t count,
                         Columns strip) {
    const int64_t rows = p_.rows / kAmxRows * kAmxRows, cols = strip.end - strip.begin;
    if (p_.scale || rows == 0 || steps % kTile != 0 || cols % kBlockCols != 0) return 0;
    const PanelColumns b = panel_columns(p_.panels, p_.panel_words, p_.cols, strip.begin);
    const amx::WholeBlocks blocks{.a = reinterpret_cast<const std::byte*>(slab_ + begin * kTile),
                                  .a_stride = 4 * kTile,
                                  .a_tile = 4 * chunks_ * kTile * kTile,
                                  .a_chunk = 4 * kTile * kTile,
                                  .b = reinterpret_cast<const std::byte*>(b.step(first + begin)),
                                  .b_panel = 4 * p_.panel_words,
                                  .chunks = steps / kTile,
                                  .rows = rows,
                                  .cols = cols};
    // The rows of the next slab: the hardware does not foresee pieces of rows.
    const int64_t last = 2 * (first + begin + steps);
    const amx::NextRows next{.row = reinterpret_cast<const std::byte*>(p_.a + last * p_.a_stride),
                             .bytes = 2 * p_.rows,
                             .stride = 2 * p_.a_stride,
                             .rows = begin + steps == count && strip.end == p_.cols
                                         ? std::min(p_.k - last, 2 * kPassSteps)
                                         : 0};
    if (p_.store && first + begin == 0) {
      amx::accumulate_whole_blocks<false>(blocks, p_.c + strip.begin, p_.c_stride, next);
    } else {
      amx::accumulate_whole_blocks<true>(blocks, p_.c + strip.begin, p_.c_stride, next);
    }
    return rows;
  }

  void compute_block(const PassSteps& steps, const Rows& r, const PanelColumns& b) {
    const bool in_place = r.rows % kTile == 0 && b.count % kTile == 0 && !p_.scale;
    Block x{.a = reinterpret_cast<const std::byte*>(
                slab_ + (r.i * chunks_ + steps.first_chunk * kTile) * kTile),
            .a_stride = 4 * kTile,
            .a_tile = 4 * chunks_ * kTile * kTile,
            .a_chunk = 4 * kTile * kTile,
            .b = steps.b,
            .b_stride = 4 * b.stride,
            .b_rest = steps.b_rest,
            .chunks = steps.chunks,
            .start = steps.stores || p_.scale ? nullptr
                     : in_place               ? r.c
                                              : sum_,
            .c = in_place ? r.c : sum_,
            .start_stride = in_place ? 4 * p_.c_stride : 4 * kBlockCols,
            .c_stride = in_place ? 4 * p_.c_stride : 4 * kBlockCols};
    if (x.start == sum_) load_block(r, b);
    multiply_block(x, ceil_div(r.rows, kTile), b.width / kTile);
    if (!in_place) store_block(steps, r, b);
  }

  void load_block(const Rows& r, const PanelColumns& b) {
    for (int64_t row = 0; row < r.rows; ++row) {
      load_rows(sum_ + row * kBlockCols, r.c + row * p_.c_stride, b.count);
    }
  }

  // The epilogue: c = sum, or c + scale sum.
  void store_block(const PassSteps& steps, const Rows& r, const PanelColumns& b) const {
    for (int64_t row = 0; row < r.rows; ++row) {
      float* c = r.c + row * p_.c_stride;
      const float* sum = sum_ + row * kBlockCols;
      if (p_.scale) {
        store_scaled<float>(c, steps.stores ? nullptr : c, *p_.scale, sum, b.count);
      } else {
        store_rows(c, sum, b.count);
      }
    }
  }

  const OuterProduct<bf16>& p_;
  // The columns of `a` as tiles: (row tile, chunk of steps, 16 rows, 16 steps).
  static constexpr int64_t kSlabWords = kMostOuterRows * kPassSteps;
  alignas(64) uint32_t slab_[kSlabWords];
  int64_t chunks_ = 0;  // of the slab that is packed
  alignas(64) float sum_[kAmxRows * kBlockCols];
  RestOfSteps rest_;
};

}  // namespace

bool has_amx() {
  // Linux grants the tile registers on request, to all threads of a process.
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
}

template <typename Y>
void multiply_amx(const Product<bf16, Y>& p) {
  const TileUnit unit;
  Multiplication<Y>(p).run();
}

void accumulate_amx(const OuterProduct<bf16>& p) {
  const TileUnit unit;
  Accumulation(p).run();
}

template void multiply_amx<float>(const Product<bf16, float>&);
template void multiply_amx<bf16>(const Product<bf16, bf16>&);

}  // namespace assay::panel

#else

namespace assay::panel {

bool has_amx() {
  return false;
}
template <typename Y>
void multiply_amx(const Product<bf16, Y>&) {}
void accumulate_amx(const OuterProduct<bf16>&) {}
template void multiply_amx<float>(const Product<bf16, float>&);
template void multiply_amx<bf16>(const Product<bf16, bf16>&);

}  // namespace assay::panel

#endif
