// The micro-kernel of ops/cpu_gemm/gemm.h: one tile of up to 6 x 64 sums in registers. Uses vector
// extensions of the compiler, as wide as the CPU has; AVX-512 adds masks for rows that end inside a
// vector, AVX512-BF16 one instruction.
//
// Zen 4, one core: 230 of 235 GFLOP/s at 128 bf16 steps (a loop of only vdpbf16ps gives 235), 216
// at 32.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "base/bf16.h"
#include "base/vector_math.h"
#include "ops/cpu_gemm/gemm.h"

namespace assay::panel {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Words = uint32_t __attribute__((vector_size(4 * kLanes)));

enum class Format { kZero, kFloat, kBf16 };
template <typename Y>
constexpr Format kFormatOf = std::is_same_v<Y, float> ? Format::kFloat : Format::kBf16;

struct Tile {
  const std::byte* a[kTileRows];  // in  the first step of each row, as floats if kFloatRows<T>
  int64_t a_step;                 //     bytes from one step to the next
  int64_t steps;
  const uint32_t* b;  // in  a panel, from the first step on
  const void* start;  // in  (rows, cols)
  Format start_format;
  int64_t start_stride;
  void* c;  // out (rows, cols)
  Format c_format;
  int64_t c_stride;
  int64_t cols;
};

// True where the rows of a come as floats, two for a bf16 step: the floats of both of a step's
// pairs do not fit into the registers of AVX2 beside the sums, and a row is read by every panel.
// The odd k of all rows are added before the even ones.
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
template <typename T>
constexpr bool kFloatRows = std::is_same_v<T, bf16>;
#else
template <typename T>
constexpr bool kFloatRows = false;
#endif
// Words of a row's step.
template <typename T>
constexpr int kStepWords = kFloatRows<T> ? 2 : 1;

[[gnu::always_inline]] inline uint32_t word_at(const std::byte* a) {
  uint32_t word;
  std::memcpy(&word, a, sizeof word);
  return word;
}
// Words at b; in all lanes the word at a.
[[gnu::always_inline]] inline Words words_at(const uint32_t* b) {
  Words words;
  std::memcpy(&words, b, sizeof words);
  return words;
}
[[gnu::always_inline]] inline Words spread(const std::byte* a) {
  Words words = Words{} + word_at(a);
#if defined(__AVX2__)
  // Spread by the load: g++ would compute with the word first, and spread it by two instructions.
  asm volatile("" : "+x"(words));
#endif
  return words;
}

template <typename T>
[[gnu::always_inline]] inline void multiply_add(Floats& sum, uint32_t a, const Words& b) {
  if constexpr (std::is_same_v<T, float>) {
    sum += std::bit_cast<float>(a) * reinterpret_cast<Floats>(b);
  } else {
#if defined(__AVX512BF16__)
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(a));
    sum = reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                    reinterpret_cast<__m512bh>(pair),
                                                    reinterpret_cast<__m512bh>(b)));
#else
    const Words high = b & 0xFFFF0000u, low = b << 16;
    sum += std::bit_cast<float>(a & 0xFFFF0000u) * reinterpret_cast<Floats>(high);
    sum += std::bit_cast<float>(a << 16) * reinterpret_cast<Floats>(low);
#endif
  }
}

// Loads or stores the lanes below `count` of one vector of c.
[[gnu::always_inline]] inline Floats load(const float* from, int64_t count) {
  Floats x = {};
#if defined(__AVX512F__)
  if (count != kLanes) {
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(mask, from));
  }
#endif
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
[[gnu::always_inline]] inline Floats load(const bf16* from, int64_t count) {
  bf16 lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(bf16));
  Floats x;
  for (int l = 0; l < kLanes; ++l) x[l] = float(lanes[l]);
  return x;
}
[[gnu::always_inline]] inline void store(const Floats& x, float* to, int64_t count) {
#if defined(__AVX512F__)
  if (count != kLanes) {
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
  if (count == kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  } else {
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), rounded);
  }
#else
  using Halves = uint16_t __attribute__((vector_size(2 * kLanes)));
  const Words words = rounded_to_bf16(reinterpret_cast<Words>(x));
  const Halves bits = __builtin_convertvector(words, Halves);
  std::memcpy(&to->bits, &bits, static_cast<size_t>(count) * sizeof bits[0]);
#endif
}

// Rows x (Together vectors) sums; `cols` is the number of valid columns from the first one on.
template <int Rows, int Together>
struct Sums {
  Floats sum[Rows][Together];

  static int64_t lanes(int64_t cols, int v) {
    return std::clamp<int64_t>(cols - v * kLanes, 0, kLanes);
  }
  // Adds the products of one step: of the rows' words at `offset` and the words at b.
  template <typename T>
  [[gnu::always_inline]] void add_step(const std::byte* const* a, int64_t offset,
                                       const uint32_t* b) {
    Words columns[Together];
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) columns[v] = words_at(b + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const uint32_t word = word_at(a[r] + offset);
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) multiply_add<T>(sum[r][v], word, columns[v]);
    }
  }
  template <typename Y>
  [[gnu::always_inline]] void load_all(const Y* from, int64_t stride, int64_t cols) {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) {
        sum[r][v] = load(from + r * stride + v * kLanes, lanes(cols, v));
      }
    }
  }
  template <typename Y>
  [[gnu::always_inline]] void store_all(Y* to, int64_t stride, int64_t cols) const {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) {
        store(sum[r][v], to + r * stride + v * kLanes, lanes(cols, v));
      }
    }
  }
};

// sum += x * y, in sum's own register.
[[gnu::always_inline]] inline void add_in_place(Floats& sum, const Floats& x, const Floats& y) {
#if defined(__AVX2__) && defined(__FMA__)
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
#else
  sum += x * y;
#endif
}

// One k of a step, where the rows are floats: of a pair of b its odd k, or its even one.
template <bool Odd, int Rows, int Together>
[[gnu::always_inline]] inline void add_half_step(Floats (&sum)[Rows][Together],
                                                 const std::byte* const* a, int64_t offset,
                                                 const uint32_t* b) {
  Floats columns[Together];
#pragma GCC unroll 4
  for (int v = 0; v < Together; ++v) {
    const Words pairs = words_at(b + v * kLanes);
    columns[v] = reinterpret_cast<Floats>(Odd ? pairs & 0xFFFF0000u : pairs << 16);
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    const Floats x = reinterpret_cast<Floats>(spread(a[r] + offset + (Odd ? sizeof(float) : 0)));
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) add_in_place(sum[r][v], x, columns[v]);
  }
}

// Adds the products of all steps where the rows are floats, of each step the odd k first. The sums
// are in an array that nothing else looks at, and are added in place: otherwise g++ 12 keeps some
// of them in memory, which takes up to half as long again.
template <int Rows, int Width, int Together>
[[gnu::noinline]] void add_float_rows(Floats (&all)[Rows][Together], const std::byte* const* rows,
                                      int64_t a_step, int64_t steps, const uint32_t* b) {
  Floats sum[Rows][Together];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) sum[r][v] = all[r][v];
  }
  const std::byte* a[Rows];
  for (int r = 0; r < Rows; ++r) a[r] = rows[r];
  for (int64_t i = 0, offset = 0; i < steps; ++i, offset += a_step, b += Width) {
    add_half_step<true>(sum, a, offset, b);
    add_half_step<false>(sum, a, offset, b);
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Together; ++v) all[r][v] = sum[r][v];
  }
}

// Columns [first, first + Together vectors) of a panel `Width` words wide.
template <typename T, int Rows, int Width, int Together>
[[gnu::always_inline]] inline void tile_columns(const Tile& t, int64_t first) {
  constexpr int64_t kWhole = Together * kLanes;
  const int64_t cols = t.cols - first;
  Sums<Rows, Together> s;
  if (t.start_format == Format::kZero) {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Together; ++v) s.sum[r][v] = Floats{};
    }
  } else if (t.start_format == Format::kBf16) {
    s.load_all(static_cast<const bf16*>(t.start) + first, t.start_stride, cols);
  } else if (cols >= kWhole) {
    s.load_all(static_cast<const float*>(t.start) + first, t.start_stride, kWhole);
  } else {
    s.load_all(static_cast<const float*>(t.start) + first, t.start_stride, cols);
  }

  const uint32_t* b = t.b + first;
  const std::byte* a[Rows];
  for (int r = 0; r < Rows; ++r) a[r] = t.a[r];
  if constexpr (kFloatRows<T>) {
    add_float_rows<Rows, Width, Together>(s.sum, a, t.a_step, t.steps, b);
  } else {
    for (int64_t i = 0, offset = 0; i < t.steps; ++i, offset += t.a_step, b += Width) {
      s.template add_step<T>(a, offset, b);
    }
  }

  float* floats = static_cast<float*>(t.c) + first;
  bf16* halves = static_cast<bf16*>(t.c) + first;
  if (cols >= kWhole) {
    if (t.c_format == Format::kFloat) s.store_all(floats, t.c_stride, kWhole);
    if (t.c_format == Format::kBf16) s.store_all(halves, t.c_stride, kWhole);
  } else {
    if (t.c_format == Format::kFloat) s.store_all(floats, t.c_stride, cols);
    if (t.c_format == Format::kBf16) s.store_all(halves, t.c_stride, cols);
  }
}

template <typename T, int Rows, int Vectors>
void tile_kernel(const Tile& t) {
  constexpr int kWidth = Vectors * int(kVector);
  // Prefetches c, which is written at the end: a wide c does not stay in the cache.
  const int64_t c_bytes = t.c_format == Format::kFloat ? 4 : 2;
  for (int r = 0; r < Rows; ++r) {
    const std::byte* row = static_cast<const std::byte*>(t.c) + r * t.c_stride * c_bytes;
    for (int64_t line = 0; line < t.cols * c_bytes; line += 64) __builtin_prefetch(row + line, 1);
  }
  if constexpr (kLanes == kVector) {
    tile_columns<T, Rows, kWidth, Vectors>(t, 0);
  } else {
    for (int64_t first = 0; first < t.cols; first += kVector) {
      tile_columns<T, Rows, kWidth, int(kVector) / kLanes>(t, first);
    }
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

}  // namespace assay::panel
