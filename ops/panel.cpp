#include "ops/panel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
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
  int64_t steps;
  const uint32_t* b;
  const void* start;
  Format start_format;
  int64_t start_stride;
  void* c;
  Format c_format;
  int64_t c_stride;
  int64_t cols;
};

// One vector of c: the lanes below `count` are read or written.
[[gnu::always_inline]] inline Floats load(const float* from, int64_t count) {
#if defined(__AVX512F__)
  if (count != kVector) {
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(mask, from));
  }
#endif
  Floats x = {};
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
[[gnu::always_inline]] inline Floats load(const bf16* from, int64_t count) {
  bf16 lanes[kVector] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(bf16));
  Floats x;
  for (int64_t l = 0; l < kVector; ++l) x[l] = float(lanes[l]);
  return x;
}
[[gnu::always_inline]] inline void store(const Floats& x, float* to, int64_t count) {
#if defined(__AVX512F__)
  if (count != kVector) {
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    return _mm512_mask_storeu_ps(to, mask, reinterpret_cast<__m512>(x));
  }
#endif
  std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float));
}
[[gnu::always_inline]] inline void store(const Floats& x, bf16* to, int64_t count) {
#if defined(__AVX512BF16__)
  const __m256i rounded =
      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x)));
  if (count == kVector) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  } else {
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), rounded);
  }
#else
  for (int64_t l = 0; l < count; ++l) to[l] = bf16(x[l]);
#endif
}

// Sums of one tile: `Together` vectors from vector First of the panel on.
template <int Rows, int First, int Together>
struct Sums {
  Floats sum[Rows][Together];

  template <typename Y>
  [[gnu::always_inline]] void load_all(const void* base, int64_t stride, int64_t cols) {
    const Y* from = static_cast<const Y*>(base) + First * kVector;
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) {
        sum[r][v] =
            load(from + r * stride + v * kVector, std::min(kVector, cols - (First + v) * kVector));
      }
    }
  }
  template <typename Y>
  [[gnu::always_inline]] void store_all(void* base, int64_t stride, int64_t cols) const {
    Y* to = static_cast<Y*>(base) + First * kVector;
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) {
        store(sum[r][v], to + r * stride + v * kVector,
              std::min(kVector, cols - (First + v) * kVector));
      }
    }
  }
};

template <typename T, int Rows, int Vectors, int First, int Together>
[[gnu::always_inline]] inline void tile_part(const Tile& t) {
  constexpr int64_t kFull = Vectors * kVector;
  Sums<Rows, First, Together> s;
  if (t.start_format == Format::kZero) {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) s.sum[r][v] = Floats{};
    }
  } else if (t.start_format == Format::kBf16) {
    s.template load_all<bf16>(t.start, t.start_stride, t.cols);
  } else if (t.cols == kFull) {
    s.template load_all<float>(t.start, t.start_stride, kFull);
  } else {
    s.template load_all<float>(t.start, t.start_stride, t.cols);
  }

  // What is written at the end is fetched meanwhile: a wide c does not stay in the cache.
  const int64_t c_bytes = t.c_format == Format::kFloat ? 4 : 2;
  for (int r = 0; r < Rows; ++r) {
    const std::byte* row = static_cast<const std::byte*>(t.c) + r * t.c_stride * c_bytes;
    for (int64_t line = 0; line < t.cols * c_bytes; line += 64) __builtin_prefetch(row + line, 1);
  }
  const uint32_t* b = t.b + First * kVector;
  const std::byte* a[Rows];
  for (int r = 0; r < Rows; ++r) a[r] = t.a[r];
  for (int64_t i = 0, offset = 0; i < t.steps; ++i, offset += t.a_step, b += kFull) {
    Words columns[Together];
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) std::memcpy(&columns[v], b + v * kVector, sizeof(Words));
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      uint32_t word;
      std::memcpy(&word, a[r] + offset, sizeof word);
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) multiply_add<T>(s.sum[r][v], word, columns[v]);
    }
  }

  if (t.cols != kFull) {
    if (t.c_format == Format::kFloat) {
      s.template store_all<float>(t.c, t.c_stride, t.cols);
    } else {
      s.template store_all<bf16>(t.c, t.c_stride, t.cols);
    }
  } else if (t.c_format == Format::kFloat) {
    s.template store_all<float>(t.c, t.c_stride, kFull);
  } else {
    s.template store_all<bf16>(t.c, t.c_stride, kFull);
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
  // Passes of kBlockSteps whole steps, then the half step of an odd k. k = 0 is one empty pass.
  const int64_t all_steps = steps<T>(p.k), whole_steps = p.k / kStep<T>;
  const int64_t whole_passes = (whole_steps + kBlockSteps - 1) / kBlockSteps;
  const int64_t passes = std::max<int64_t>(1, whole_passes + (all_steps - whole_steps));
  alignas(64) float sums[kBlockRows * kPanelCols];  // between the passes of one panel
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
