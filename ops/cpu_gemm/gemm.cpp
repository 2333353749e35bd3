#include "ops/cpu_gemm/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "ops/cpu_gemm/amx.h"
#include "ops/cpu_gemm/microkernel.h"
#include "ops/cpu_gemm/scale.h"

namespace assay::panel {

namespace {

// Without a scale no bit depends on the slabs: a whole chunk of the head (ops/head_loss.cpp) reads
// and writes its gradient once, unless its rows as floats were too large for the L2 cache.
template <typename T>
constexpr int64_t kFreeSlabSteps = kFloatRows<T> ? kBlockSteps : 576;

// Splits [0, steps) into passes of at most kBlockSteps, of nearly equal length.
struct Passes {
  int64_t steps, count;
  explicit Passes(int64_t all)
      : steps(all), count(std::max<int64_t>(1, ceil_div(all, kBlockSteps))) {}
  int64_t begin(int64_t pass) const { return pass * steps / count; }
};

// Calls f(begin, count) for rows [0, rows) in tiles of nearly equal height, at most kTileRows.
template <typename F>
void for_tiles(int64_t rows, F&& f) {
  const int64_t tiles = ceil_div(rows, kTileRows);
  for (int64_t i = 0, begin = 0; i < tiles; ++i) {
    const int64_t end = (i + 1) * rows / tiles;
    f(begin, end - begin);
    begin = end;
  }
}

// The rows of a pass as floats, if kFloatRows<T>: two for a step, of which a half step has one.
template <typename T>
class FloatRows {
 public:
  static constexpr int64_t kRowFloats = kBlockSteps * kStep<T>;
  const std::byte* row(int64_t i) const {
    return reinterpret_cast<const std::byte*>(floats_ + i * kRowFloats);
  }
  void set(int64_t i, const T* from, int64_t steps, bool half) {
    float* to = floats_ + i * kRowFloats;
    const int64_t count = half ? steps : steps * kStep<T>;
    for (int64_t k = 0; k < count; ++k) to[k] = float(from[k]);
    if (half) to[1] = 0;
  }

 private:
  alignas(64) float floats_[kFloatRows<T> ? kBlockRows * kRowFloats : 1];
};

// Columns [first_col, first_col + block_cols) of a product, at most kBlockCols: a part of the rows
// of a stays in the L2 cache while every panel passes over it.
template <typename T, typename Y>
void multiply_columns(const Product<T, Y>& p, int64_t first_col, int64_t block_cols) {
  // Passes over whole steps, then the half step of an odd k. k = 0 is one empty pass.
  const int64_t all_steps = steps<T>(p.k), whole_steps = p.k / kStep<T>;
  const Passes whole(whole_steps);
  const int64_t whole_passes = whole_steps > 0 ? whole.count : 0;
  const int64_t passes = std::max<int64_t>(1, whole_passes + (all_steps - whole_steps));
  alignas(64) float sums[kBlockRows * kBlockCols];  // between the passes
  FloatRows<T> floats;
  const auto row_of_a = [&](int64_t i, int64_t first) {
    return p.a + (p.row == nullptr ? i : p.row[i]) * p.a_stride + first * kStep<T>;
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    const bool half = pass >= whole_passes;
    const int64_t first = half ? whole_steps : whole.begin(pass);
    const int64_t last = half ? all_steps : whole.begin(pass + 1);
    if constexpr (kFloatRows<T>) {
      for (int64_t i = 0; i < p.rows; ++i) floats.set(i, row_of_a(i, first), last - first, half);
    }
    for (int64_t col = 0; col < block_cols; col += kPanelCols<T>) {
      const int64_t cols = std::min(kPanelCols<T>, block_cols - col), width = padded_cols(cols);
      const uint32_t* panel = p.panels + (first_col + col) * all_steps;
      for_tiles(p.rows, [&](int64_t i, int64_t rows) {
        Tile t{.a = {},
               .a_step = 4 * kStepWords<T>,
               .steps = last - first,
               .b = panel + first * width,
               .start = sums + i * kBlockCols + col,
               .start_format = Format::kFloat,
               .start_stride = kBlockCols,
               .c = sums + i * kBlockCols + col,
               .c_format = Format::kFloat,
               .c_stride = kBlockCols,
               .cols = cols};
        uint32_t half_words[kTileRows] = {};
        for (int64_t r = 0; r < rows; ++r) {
          if constexpr (kFloatRows<T>) {
            t.a[r] = floats.row(i + r);
            continue;
          }
          t.a[r] = reinterpret_cast<const std::byte*>(row_of_a(i + r, first));
          if (half && last > first) {
            std::memcpy(&half_words[r], t.a[r], sizeof(T));
            t.a[r] = reinterpret_cast<const std::byte*>(&half_words[r]);
          }
        }
        const int64_t at = i * p.c_stride + first_col + col;
        const Y* start = p.start == nullptr ? nullptr : p.start + at;
        if (pass == 0) {
          t.start = start;
          t.start_format = start == nullptr || p.scale ? Format::kZero : kFormatOf<Y>;
          t.start_stride = p.c_stride;
        }
        if (pass == passes - 1 && !p.scale) {
          t.c = p.c + at;
          t.c_format = kFormatOf<Y>;
          t.c_stride = p.c_stride;
        }
        tile_kernel_of<T>(rows, width / kVector)(t);
        if (pass < passes - 1 || !p.scale) return;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t row = r * p.c_stride;
          store_scaled(p.c + at + row, start == nullptr ? nullptr : start + row, *p.scale,
                       sums + (i + r) * kBlockCols + col, cols);
        }
      });
    }
  }
}

// One step of a tile of a slab.
template <typename T>
void write_step(uint32_t* to, const uint32_t* words, int64_t height) {
  if constexpr (kFloatRows<T>) {
    for (int64_t r = 0; r < height; ++r) {
      to[2 * r] = words[r] << 16;
      to[2 * r + 1] = words[r] & 0xFFFF0000u;
    }
  } else {
    std::copy_n(words, height, to);
  }
}

// Steps [first, first + count) of the columns [0, rows) of a, tile by tile: a step of a tile is
// `height` times kStepWords<T> words, and the tile of row i begins at slab + i * count times these.
template <typename T>
void pack_slab(uint32_t* slab, const OuterProduct<T>& p, int64_t first, int64_t count) {
  constexpr int64_t kTogether = 16;  // steps: their rows of a are read once
  alignas(64) uint32_t packed[kTogether * kBlockRows];
  const int64_t width = padded_cols(p.rows);
  for (int64_t s = 0; s < count; s += kTogether) {
    const int64_t n = std::min(kTogether, count - s);
    pack_rows<T>({.panels = packed,
                  .panel_words = 0,
                  .panel_cols = kBlockRows,
                  .x = p.a + (first + s) * kStep<T> * p.a_stride,
                  .stride = p.a_stride,
                  .row = nullptr,
                  .k = p.k - (first + s) * kStep<T>,
                  .cols = p.rows},
                 0, n);
    for_tiles(p.rows, [&](int64_t i, int64_t height) {
      uint32_t* to = slab + (i * count + s * height) * kStepWords<T>;
      const uint32_t* from = packed + i;
      for (int64_t step = 0; step < n; ++step, from += width) {
        if (height == kTileRows) {  // of constant length
          write_step<T>(to, from, kTileRows);
        } else {
          write_step<T>(to, from, height);
        }
        to += height * kStepWords<T>;
      }
    });
  }
}

}  // namespace

template <typename T>
int64_t tile_rows() {
  return std::is_same_v<T, bf16> && has_amx() ? kAmxRows : kTileRows;
}

template <typename T>
int64_t tile_steps() {
  return std::is_same_v<T, bf16> && has_amx() ? kAmxSteps : 1;
}

template <typename T>
int64_t chunk_bytes() {
  // CPUs with a matrix unit have 2 MB of L2 cache for each core.
  return (std::is_same_v<T, bf16> && has_amx() ? 1024 : 256) << 10;
}

template <typename T>
int64_t block_rows(int64_t rows, int64_t cols, int64_t k, bool gathers) {
  if (!std::is_same_v<T, bf16> || !has_amx() || gathers) return kBlockRows;
  return amx_block_rows(rows, cols, k);
}

template <typename T>
int64_t outer_rows(int64_t cols, bool scaled) {
  if (!std::is_same_v<T, bf16> || !has_amx() || scaled) return kBlockRows;
  return amx_outer_rows(cols);
}

template <typename T, typename Y>
void multiply(const Product<T, Y>& p) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return multiply_amx<Y>(p);
  }
  for (int64_t col = 0; col < p.cols; col += kBlockCols) {
    multiply_columns(p, col, std::min(kBlockCols, p.cols - col));
  }
}

template <typename T>
void accumulate(const OuterProduct<T>& p) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return accumulate_amx(p);
  }
  constexpr int64_t kMostSteps = std::max(kSlabSteps, kFreeSlabSteps<T>);
  alignas(64) uint32_t slab[kMostSteps * kBlockRows * kStepWords<T>];
  alignas(64) float sums[kBlockRows * kPanelCols<T>];  // of one panel, if there is a scale
  const int64_t all_steps = steps<T>(p.k);
  const int64_t slab_steps = p.scale ? kSlabSteps : kFreeSlabSteps<T>;
  for (int64_t first = 0; first < all_steps; first += slab_steps) {
    const int64_t count = std::min(slab_steps, all_steps - first);
    const bool stores = p.store && first == 0;
    pack_slab(slab, p, first, count);
    const Passes passes(count);
    for (int64_t col = 0; col < p.cols; col += kPanelCols<T>) {
      const int64_t cols = std::min(kPanelCols<T>, p.cols - col), width = padded_cols(cols);
      const uint32_t* panel = p.panels + col / kPanelCols<T> * p.panel_words + first * width;
      for (int64_t pass = 0; pass < passes.count; ++pass) {
        const int64_t from = passes.begin(pass);
        for_tiles(p.rows, [&](int64_t i, int64_t rows) {
          float* c = p.c + i * p.c_stride + col;
          Tile t{.a = {},
                 .a_step = 4 * kStepWords<T> * rows,
                 .steps = passes.begin(pass + 1) - from,
                 .b = panel + from * width,
                 .start = c,
                 .start_format = Format::kFloat,
                 .start_stride = p.c_stride,
                 .c = c,
                 .c_format = Format::kFloat,
                 .c_stride = p.c_stride,
                 .cols = cols};
          for (int64_t r = 0; r < rows; ++r)
            t.a[r] = reinterpret_cast<const std::byte*>(slab + (i * count + from * rows + r) *
                                                                   kStepWords<T>);
          if (p.scale) {
            t.start = t.c = sums + i * kPanelCols<T>;
            t.start_stride = t.c_stride = kPanelCols<T>;
          }
          if (pass == 0 && (stores || p.scale)) t.start_format = Format::kZero;
          tile_kernel_of<T>(rows, width / kVector)(t);
          if (!p.scale || pass < passes.count - 1) return;
          for (int64_t r = 0; r < rows; ++r) {
            float* row = c + r * p.c_stride;
            store_scaled<float>(row, stores ? nullptr : row, *p.scale,
                                sums + (i + r) * kPanelCols<T>, cols);
          }
        });
      }
    }
  }
}

template int64_t tile_rows<float>();
template int64_t tile_rows<bf16>();
template int64_t tile_steps<float>();
template int64_t tile_steps<bf16>();
template int64_t chunk_bytes<float>();
template int64_t chunk_bytes<bf16>();
template int64_t block_rows<float>(int64_t, int64_t, int64_t, bool);
template int64_t block_rows<bf16>(int64_t, int64_t, int64_t, bool);
template int64_t outer_rows<float>(int64_t, bool);
template int64_t outer_rows<bf16>(int64_t, bool);
template void multiply<float, float>(const Product<float, float>&);
template void multiply<bf16, bf16>(const Product<bf16, bf16>&);
template void multiply<bf16, float>(const Product<bf16, float>&);
template void accumulate<float>(const OuterProduct<float>&);
template void accumulate<bf16>(const OuterProduct<bf16>&);

}  // namespace assay::panel
