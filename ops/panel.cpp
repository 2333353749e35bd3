#include "ops/panel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace assay::panel {

namespace {

// 16 lanes: one AVX-512 register, two AVX2 registers, or what the compiler makes of it.
using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));

// Vectors of one panel that are summed together: as many as the registers hold.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 1;
#endif

template <typename T>
[[gnu::always_inline]] inline void multiply_add(Floats& sum, uint32_t a, const Words& b) {
  if constexpr (std::is_same_v<T, float>) {
    sum += std::bit_cast<float>(a) * reinterpret_cast<const Floats&>(b);
  } else {
#if defined(__AVX512BF16__)
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(a));
    sum = reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                    reinterpret_cast<__m512bh>(pair),
                                                    reinterpret_cast<const __m512bh&>(b)));
#else
    const Words high = b & 0xFFFF0000u, low = b << 16;
    sum += std::bit_cast<float>(a & 0xFFFF0000u) * reinterpret_cast<const Floats&>(high);
    sum += std::bit_cast<float>(a << 16) * reinterpret_cast<const Floats&>(low);
#endif
  }
}

enum class Format { kZero, kFloat, kBf16 };

// One tile: Rows x (up to 64) sums.
struct Tile {
  const std::byte* a[kTileRows];  // the first step of each row
  int64_t a_step;                 // bytes from one step to the next
  int64_t steps;                  // whole steps
  int64_t half_step;              // 1: one more step of which a has the lower half only
  const uint32_t* b;
  const void* start;
  Format start_format;
  int64_t start_stride;
  void* c;
  Format c_format;
  int64_t c_stride;
  int64_t cols;
};

[[gnu::always_inline]] inline Floats load(const void* base, Format format, int64_t offset,
                                          int64_t count) {
  Floats x = {};
  if (format == Format::kFloat) {
    const float* from = static_cast<const float*>(base) + offset;
    if (count == kVector) {
      std::memcpy(&x, from, sizeof x);
    } else {
      for (int64_t l = 0; l < count; ++l) x[l] = from[l];
    }
  } else if (format == Format::kBf16) {
    const bf16* from = static_cast<const bf16*>(base) + offset;
    for (int64_t l = 0; l < count; ++l) x[l] = float(from[l]);
  }
  return x;
}

[[gnu::always_inline]] inline void store(const Floats& x, void* base, Format format, int64_t offset,
                                         int64_t count) {
  if (format == Format::kFloat) {
    float* to = static_cast<float*>(base) + offset;
    if (count == kVector) {
      std::memcpy(to, &x, sizeof x);
    } else {
      for (int64_t l = 0; l < count; ++l) to[l] = x[l];
    }
  } else {
    bf16* to = static_cast<bf16*>(base) + offset;
#if defined(__AVX512BF16__)
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    _mm256_mask_storeu_epi16(
        to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x))));
#else
    for (int64_t l = 0; l < count; ++l) to[l] = bf16(x[l]);
#endif
  }
}

template <typename T, int Rows, int Vectors, int First, int Together>
[[gnu::always_inline]] inline void tile_part(const Tile& t) {
  Floats sum[Rows][Together];
  const auto count = [&](int v) { return std::min(kVector, t.cols - (First + v) * kVector); };
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) {
      sum[r][v] =
          load(t.start, t.start_format, r * t.start_stride + (First + v) * kVector, count(v));
    }
  }
  const uint32_t* b = t.b + First * kVector;
  const auto step = [&](int64_t offset, auto word) {
    Words columns[Together];
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) std::memcpy(&columns[v], b + v * kVector, sizeof(Words));
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      decltype(word) a;
      std::memcpy(&a, t.a[r] + offset, sizeof a);
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) multiply_add<T>(sum[r][v], a, columns[v]);
    }
    b += Vectors * kVector;
  };
  int64_t offset = 0;
  for (int64_t s = 0; s < t.steps; ++s, offset += t.a_step) step(offset, uint32_t{});
  if (t.half_step != 0) step(offset, uint16_t{});
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) {
      store(sum[r][v], t.c, t.c_format, r * t.c_stride + (First + v) * kVector, count(v));
    }
  }
}

template <typename T, int Rows, int Vectors>
void tile_kernel(const Tile& t) {
  if constexpr (kTogether == 4) {
    tile_part<T, Rows, Vectors, 0, Vectors>(t);
  } else {
    tile_part<T, Rows, Vectors, 0, 1>(t);
    if constexpr (Vectors > 1) tile_part<T, Rows, Vectors, 1, 1>(t);
    if constexpr (Vectors > 2) tile_part<T, Rows, Vectors, 2, 1>(t);
    if constexpr (Vectors > 3) tile_part<T, Rows, Vectors, 3, 1>(t);
  }
}

using TileKernel = void (*)(const Tile&);

template <typename T>
TileKernel tile_kernel_of(int64_t rows, int64_t vectors) {
  constexpr auto make = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<TileKernel, sizeof...(I)>{tile_kernel<T, int(I / 4) + 1, int(I % 4) + 1>...};
  };
  static constexpr auto kKernels = make(std::make_index_sequence<kTileRows * 4>());
  return kKernels[static_cast<size_t>((rows - 1) * 4 + vectors - 1)];
}

template <typename Y>
constexpr Format kFormatOf = std::is_same_v<Y, float> ? Format::kFloat : Format::kBf16;

// Rows [0, rows) in tiles of nearly equal height, at most kTileRows.
template <typename F>
void for_tiles(int64_t rows, F&& f) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t i = 0, begin = 0; i < tiles; ++i) {
    const int64_t end = (i + 1) * rows / tiles;
    f(begin, end - begin);
    begin = end;
  }
}

}  // namespace

template <typename T, typename Y>
void multiply(const Product<T, Y>& p) {
  const int64_t all_steps = steps<T>(p.k), whole_steps = p.k / kStep<T>;
  const int64_t passes = std::max<int64_t>(1, (all_steps + kBlockSteps - 1) / kBlockSteps);
  alignas(64) float sums[kBlockRows * kPanelCols];  // between the passes of one panel
  for (int64_t col = 0; col < p.cols; col += kPanelCols) {
    const int64_t cols = std::min(kPanelCols, p.cols - col), width = padded_cols(cols);
    const uint32_t* panel = p.panels + col * all_steps;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = pass * kBlockSteps, last = std::min(all_steps, first + kBlockSteps);
      for_tiles(p.rows, [&](int64_t i, int64_t rows) {
        Tile t{.a = {},
               .a_step = 4,
               .steps = std::min(last, whole_steps) - first,
               .half_step = last > whole_steps,
               .b = panel + first * width,
               .start = sums + i * kPanelCols,
               .start_format = Format::kFloat,
               .start_stride = kPanelCols,
               .c = sums + i * kPanelCols,
               .c_format = Format::kFloat,
               .c_stride = kPanelCols,
               .cols = cols};
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t from = p.row == nullptr ? i + r : p.row[i + r];
          t.a[r] = reinterpret_cast<const std::byte*>(p.a + from * p.k) + 4 * first;
        }
        if (pass == 0) {
          t.start = p.start + i * p.c_stride + col;
          t.start_format = p.start == nullptr ? Format::kZero : kFormatOf<Y>;
          t.start_stride = p.c_stride;
        }
        if (pass == passes - 1) {
          t.c = p.c + i * p.c_stride + col;
          t.c_format = kFormatOf<Y>;
          t.c_stride = p.c_stride;
        }
        tile_kernel_of<T>(rows, width / kVector)(t);
      });
    }
  }
}

template <typename T>
void accumulate(const OuterProduct<T>& p) {
  alignas(64) uint32_t slab[kSlabSteps * kBlockRows];
  const int64_t all_steps = steps<T>(p.k);
  const int64_t slab_width = padded_cols(p.rows);
  for (int64_t first = 0; first < all_steps; first += kSlabSteps) {
    const int64_t count = std::min(kSlabSteps, all_steps - first);
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
               .half_step = 0,
               .b = b,
               .start = c,
               .start_format = Format::kFloat,
               .start_stride = p.c_stride,
               .c = c,
               .c_format = Format::kFloat,
               .c_stride = p.c_stride,
               .cols = cols};
        for (int64_t r = 0; r < rows; ++r)
          t.a[r] = reinterpret_cast<const std::byte*>(slab + i + r);
        tile_kernel_of<T>(rows, width / kVector)(t);
      });
    }
  }
}

template void multiply<float, float>(const Product<float, float>&);
template void multiply<bf16, bf16>(const Product<bf16, bf16>&);
template void multiply<bf16, float>(const Product<bf16, float>&);
template void accumulate<float>(const OuterProduct<float>&);
template void accumulate<bf16>(const OuterProduct<bf16>&);

}  // namespace assay::panel
