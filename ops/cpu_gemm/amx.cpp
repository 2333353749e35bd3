#include "ops/cpu_gemm/amx.h"

#include "ops/cpu_gemm/amx_tiles.h"

#if ASSAY_AMX

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "ops/cpu_gemm/scale.h"
#include "ops/cpu_gemm/transpose.h"

namespace assay::panel {

namespace {

using amx::Block;
using amx::kTile;
using amx::multiply_block;
using amx::TileUnit;
constexpr int64_t kBlockCols = amx::kBlock;

// Steps per pass: 32 columns of them stay in the L1 cache.
constexpr int64_t kPassSteps = 256;
// Columns per pass: its rows of `a` stay in the L2 cache.
constexpr int64_t kStripCols = 256;
constexpr int64_t kPackedSteps = 1024;  // steps of a block of `a` that are packed at a time
static_assert(kBlockRows % kAmxRows == 0 && kAmxRows == amx::kBlock && kPassSteps % kTile == 0);

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

// Copies rows of c to and from floats next to it, if c is bf16 or ends inside a tile.
void load_rows(float* to, const float* from, int64_t cols) {
  std::memcpy(to, from, size_t(cols) * sizeof(float));
}
void load_rows(float* to, const bf16* from, int64_t cols) {
  for (int64_t j = 0; j < cols; ++j) to[j] = float(from[j]);
}
void store_rows(float* to, const float* from, int64_t cols) {
  std::memcpy(to, from, size_t(cols) * sizeof(float));
}
void store_rows(bf16* to, const float* from, int64_t cols) {
  int64_t j = 0;
  for (; j + kTile <= cols; j += kTile) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + j))));
  }
  if (j < cols) {
    const __mmask16 mask = static_cast<__mmask16>((1u << (cols - j)) - 1);
    const __m512 rest = _mm512_maskz_loadu_ps(mask, from + j);
    _mm256_mask_storeu_epi16(to + j, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(rest)));
  }
}

// The rows of a block of `a` in the layout of tiles: in place if they are whole tiles, else a copy
// padded with zeros.
template <typename Y>
class BlockRows {
 public:
  explicit BlockRows(const Product<bf16, Y>& p) : p_(p) {
    direct_ = p.row == nullptr && p.rows % kTile == 0 && p.k % (2 * kTile) == 0;
  }
  // Tiles of the `count` steps from `first` on.
  const std::byte* tiles(int64_t first, int64_t count) {
    if (direct_) return reinterpret_cast<const std::byte*>(p_.a + 2 * first);
    if (first < packed_first_ || first + count > packed_last_) pack(first);
    return reinterpret_cast<const std::byte*>(packed_ + (first - packed_first_));
  }
  int64_t stride() const { return direct_ ? 2 * p_.k : 4 * kPackedStride; }

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
      std::byte* to = reinterpret_cast<std::byte*>(packed_ + i * kPackedStride);
      size_t copied = 0;
      if (i < p_.rows) {
        const int64_t from = p_.row == nullptr ? i : p_.row[i];
        std::memcpy(to, p_.a + from * p_.k + begin, bytes);
        copied = bytes;
      }
      std::memset(to + copied, 0, padded - copied);
    }
  }

  const Product<bf16, Y>& p_;
  bool direct_;
  int64_t packed_first_ = 0, packed_last_ = 0;
  alignas(64) uint32_t packed_[kBlockRows * kPackedStride];
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
  const int64_t all_steps = steps<bf16>(p.k), whole = all_steps / kTile * kTile;
  const int64_t passes = std::max<int64_t>(1, ceil_div(whole, kPassSteps));
  BlockRows<Y> a(p);
  // Sums between passes, and of blocks that are stored in parts.
  alignas(64) float sums[kBlockRows * kStripCols];
  RestOfSteps rest;
  for (int64_t strip = 0; strip < p.cols; strip += kStripCols) {
    const int64_t strip_end = std::min(p.cols, strip + kStripCols);
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = pass * kPassSteps, last = std::min(whole, first + kPassSteps);
      const bool final_pass = pass == passes - 1;
      const std::byte* tiles = a.tiles(first, (final_pass ? all_steps : last) - first);
      for (int64_t col = strip; col < strip_end; col += kBlockCols) {
        const int64_t panel_col = col / kPanelCols * kPanelCols;
        const int64_t panel_width = padded_cols(std::min(kPanelCols, p.cols - panel_col));
        const int64_t cols = std::min(kBlockCols, p.cols - col), width = padded_cols(cols);
        const uint32_t* panel = p.panels + panel_col * all_steps + (col - panel_col);
        const std::byte* b_rest = nullptr;
        if (final_pass) {
          b_rest = rest.fill(panel + whole * panel_width, panel_width, all_steps - whole, width);
        }
        for (int64_t i = 0; i < p.rows; i += kAmxRows) {
          const int64_t rows = std::min(kAmxRows, p.rows - i);
          float* sum = sums + i * kStripCols + (col - strip);
          Block x{.a = tiles + i * a.stride(),
                  .a_stride = a.stride(),
                  .a_tile = kTile * a.stride(),
                  .a_chunk = 4 * kTile,
                  .b = reinterpret_cast<const std::byte*>(panel + first * panel_width),
                  .b_stride = 4 * panel_width,
                  .b_rest = b_rest,
                  .chunks = (last - first) / kTile,
                  .start = sum,
                  .c = sum,
                  .start_stride = 4 * kStripCols,
                  .c_stride = 4 * kStripCols};
          if (pass == 0 && (p.start == nullptr || p.scale)) {
            x.start = nullptr;
          } else if (pass == 0) {
            for (int64_t r = 0; r < rows; ++r) {
              load_rows(sum + r * kStripCols, p.start + (i + r) * p.c_stride + col, cols);
            }
          }
          Y* c = p.c + i * p.c_stride + col;
          if constexpr (std::is_same_v<Y, float>) {
            if (final_pass && rows % kTile == 0 && cols % kTile == 0 && !p.scale) {
              x.c = c;
              x.c_stride = 4 * p.c_stride;
            }
          }
          multiply_block(x, ceil_div(rows, kTile), width / kTile);
          if (!final_pass || x.c != sum) continue;
          for (int64_t r = 0; r < rows; ++r) {
            const float* from = sum + r * kStripCols;
            if (p.scale) {
              const Y* start = p.start == nullptr ? nullptr : p.start + (i + r) * p.c_stride + col;
              store_scaled(c + r * p.c_stride, start, *p.scale, from, cols);
            } else {
              store_rows(c + r * p.c_stride, from, cols);
            }
          }
        }
      }
    }
  }
}

void accumulate_amx(const OuterProduct<bf16>& p) {
  const TileUnit unit;
  // The columns of `a` as tiles: (row tile, chunk of steps, 16 rows, 16 steps).
  alignas(64) uint32_t slab[kBlockRows * kSlabSteps];
  alignas(64) uint32_t chunk_words[kTile * kBlockRows];
  alignas(64) float sum[kAmxRows * kBlockCols];
  RestOfSteps rest;
  const int64_t all_steps = steps<bf16>(p.k), slab_width = padded_cols(p.rows);
  const int64_t slabs = ceil_div(all_steps, kSlabSteps);
  const int64_t slab_steps = slabs == 0 ? 0 : round_up(ceil_div(all_steps, slabs), kTile);
  for (int64_t first = 0; first < all_steps; first += slab_steps) {
    const int64_t count = std::min(slab_steps, all_steps - first);
    const int64_t chunks = ceil_div(count, kTile), whole = count / kTile;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = chunk * kTile, end = std::min(count, begin + kTile);
      pack_rows<bf16>({.panels = chunk_words,
                       .panel_words = 0,
                       .panel_cols = kBlockRows,
                       .x = p.a + 2 * (first + begin) * p.a_stride,
                       .stride = p.a_stride,
                       .row = nullptr,
                       .k = p.k - 2 * (first + begin),
                       .cols = p.rows},
                      0, end - begin);
      std::fill(chunk_words + (end - begin) * slab_width, chunk_words + kTile * slab_width, 0u);
      for (int64_t t = 0; t < slab_width / kTile; ++t) {
        transpose_16(slab + (t * chunks + chunk) * kTile * kTile, kTile,
                     reinterpret_cast<const std::byte*>(chunk_words + t * kTile), 4 * slab_width);
      }
    }
    for (int64_t col = 0; col < p.cols; col += kBlockCols) {
      const int64_t panel_col = col / kPanelCols * kPanelCols;
      const int64_t panel_width = padded_cols(std::min(kPanelCols, p.cols - panel_col));
      const int64_t cols = std::min(kBlockCols, p.cols - col), width = padded_cols(cols);
      const uint32_t* b = p.panels + panel_col / kPanelCols * p.panel_words + first * panel_width +
                          (col - panel_col);
      const std::byte* b_rest =
          rest.fill(b + whole * kTile * panel_width, panel_width, count - whole * kTile, width);
      for (int64_t i = 0; i < p.rows; i += kAmxRows) {
        const int64_t rows = std::min(kAmxRows, p.rows - i);
        float* c = p.c + i * p.c_stride + col;
        const bool in_place = rows % kTile == 0 && cols % kTile == 0 && !p.scale;
        Block x{.a = reinterpret_cast<const std::byte*>(slab + i * chunks * kTile),
                .a_stride = 4 * kTile,
                .a_tile = 4 * chunks * kTile * kTile,
                .a_chunk = 4 * kTile * kTile,
                .b = reinterpret_cast<const std::byte*>(b),
                .b_stride = 4 * panel_width,
                .b_rest = b_rest,
                .chunks = whole,
                .start = in_place  ? c
                         : p.scale ? nullptr
                                   : sum,
                .c = in_place ? c : sum,
                .start_stride = in_place ? 4 * p.c_stride : 4 * kBlockCols,
                .c_stride = in_place ? 4 * p.c_stride : 4 * kBlockCols};
        if (x.start == sum) {
          for (int64_t r = 0; r < rows; ++r) {
            load_rows(sum + r * kBlockCols, c + r * p.c_stride, cols);
          }
        }
        // Prefetches c of the next block.
        for (int64_t r = kAmxRows; r < std::min(2 * kAmxRows, p.rows - i); ++r) {
          __builtin_prefetch(c + r * p.c_stride, 1);
          __builtin_prefetch(c + r * p.c_stride + kTile, 1);
        }
        multiply_block(x, ceil_div(rows, kTile), width / kTile);
        if (in_place) continue;
        for (int64_t r = 0; r < rows; ++r) {
          float* row = c + r * p.c_stride;
          if (p.scale) {
            store_scaled<float>(row, row, *p.scale, sum + r * kBlockCols, cols);
          } else {
            store_rows(row, sum + r * kBlockCols, cols);
          }
        }
      }
    }
  }
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
