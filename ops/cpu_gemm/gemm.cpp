#include "ops/cpu_gemm/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "ops/cpu_gemm/amx.h"
#include "ops/cpu_gemm/microkernel.h"
#include "ops/cpu_gemm/scale.h"

namespace assay::panel {

namespace {

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

}  // namespace

template <typename T>
int64_t tile_rows() {
  return std::is_same_v<T, bf16> && has_amx() ? kAmxRows : kTileRows;
}

template <typename T, typename Y>
void multiply(const Product<T, Y>& p) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return multiply_amx<Y>(p);
  }
  // Passes of kBlockSteps whole steps, then the half step of an odd k. k = 0 is one empty pass.
  const int64_t all_steps = steps<T>(p.k), whole_steps = p.k / kStep<T>;
  const int64_t whole_passes = ceil_div(whole_steps, kBlockSteps);
  const int64_t passes = std::max<int64_t>(1, whole_passes + (all_steps - whole_steps));
  alignas(64) float sums[kBlockRows * kPanelCols];  // sums between the passes of one panel
  for (int64_t col = 0; col < p.cols; col += kPanelCols) {
    const int64_t cols = std::min(kPanelCols, p.cols - col), width = padded_cols(cols);
    const uint32_t* panel = p.panels + col * all_steps;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const bool half = pass >= whole_passes;
      const int64_t first = half ? whole_steps : pass * kBlockSteps;
      const int64_t last = half ? all_steps : std::min(whole_steps, first + kBlockSteps);
      for_tiles(p.rows, [&](int64_t i, int64_t rows) {
        Tile t{.a = {},
               .a_step = 4,
               .steps = last - first,
               .b = panel + first * width,
               .start = sums + i * kPanelCols,
               .start_format = Format::kFloat,
               .start_stride = kPanelCols,
               .c = sums + i * kPanelCols,
               .c_format = Format::kFloat,
               .c_stride = kPanelCols,
               .cols = cols};
        uint32_t half_words[kTileRows] = {};
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t from = p.row == nullptr ? i + r : p.row[i + r];
          t.a[r] = reinterpret_cast<const std::byte*>(p.a + from * p.k + first * kStep<T>);
          if (half && last > first) {
            std::memcpy(&half_words[r], t.a[r], sizeof(T));
            t.a[r] = reinterpret_cast<const std::byte*>(&half_words[r]);
          }
        }
        const int64_t at = i * p.c_stride + col;
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
                       sums + (i + r) * kPanelCols, cols);
        }
      });
    }
  }
}

template <typename T>
void accumulate(const OuterProduct<T>& p) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return accumulate_amx(p);
  }
  alignas(64) uint32_t slab[kSlabSteps * kBlockRows];
  alignas(64) float sums[kTileRows * kPanelCols];  // sums of one tile, if there is a scale
  const int64_t all_steps = steps<T>(p.k);
  const int64_t slab_width = padded_cols(p.rows);
  for (int64_t first = 0; first < all_steps; first += kSlabSteps) {
    const int64_t count = std::min(kSlabSteps, all_steps - first);
    const bool stores = p.store && first == 0;
    pack_rows<T>({.panels = slab,
                  .panel_words = 0,
                  .panel_cols = kBlockRows,
                  .x = p.a + first * kStep<T> * p.a_stride,
                  .stride = p.a_stride,
                  .row = nullptr,
                  .k = p.k - first * kStep<T>,
                  .cols = p.rows},
                 0, count);
    for (int64_t col = 0; col < p.cols; col += kPanelCols) {
      const int64_t cols = std::min(kPanelCols, p.cols - col), width = padded_cols(cols);
      const uint32_t* b = p.panels + col / kPanelCols * p.panel_words + first * width;
      for_tiles(p.rows, [&](int64_t i, int64_t rows) {
        float* c = p.c + i * p.c_stride + col;
        Tile t{.a = {},
               .a_step = 4 * slab_width,
               .steps = count,
               .b = b,
               .start = c,
               .start_format = stores ? Format::kZero : Format::kFloat,
               .start_stride = p.c_stride,
               .c = c,
               .c_format = Format::kFloat,
               .c_stride = p.c_stride,
               .cols = cols};
        for (int64_t r = 0; r < rows; ++r)
          t.a[r] = reinterpret_cast<const std::byte*>(slab + i + r);
        if (p.scale) {
          t.start_format = Format::kZero;
          t.c = sums;
          t.c_stride = kPanelCols;
        }
        tile_kernel_of<T>(rows, width / kVector)(t);
        if (!p.scale) return;
        for (int64_t r = 0; r < rows; ++r) {
          float* row = c + r * p.c_stride;
          store_scaled<float>(row, stores ? nullptr : row, *p.scale, sums + r * kPanelCols, cols);
        }
      });
    }
  }
}

template int64_t tile_rows<float>();
template int64_t tile_rows<bf16>();
template void multiply<float, float>(const Product<float, float>&);
template void multiply<bf16, bf16>(const Product<bf16, bf16>&);
template void multiply<bf16, float>(const Product<bf16, float>&);
template void accumulate<float>(const OuterProduct<float>&);
template void accumulate<bf16>(const OuterProduct<bf16>&);

}  // namespace assay::panel
