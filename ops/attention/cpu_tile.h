// The small matrix products of attention: 64 queries by 64 keys, operands packed in tiles on the
// stack.
//
// A tile holds lanes of 32 bits. FloatLane is one float; PairLane is two adjacent bf16 of the
// summed axis, which one instruction multiplies and adds (AVX512-BF16). With PairLane, an operand
// summed over the head width is a plain copy of bf16 rows, and one summed over queries or keys
// needs two rows interleaved: pair_rows, store_pair.
//
//   accumulate    acc[r][v] += sum over steps of a[r, step] * b[step, v]
//
// a is broadcast lane by lane, b is read as vectors: a may have any strides, and only the last axis
// of b must be contiguous.
#pragma once

#include <algorithm>
#include <type_traits>

#include "base/vector_math.h"

namespace assay::attention {

constexpr int kTile = 64;  // queries, and keys, per tile
constexpr int kTileVectors = kTile / kVector;

// Sums of a product of rows and columns, keys scored at once against all queries of a tile, and
// sums held in registers at once. A vector is one register with AVX-512, two or four elsewhere.
// Forward is faster with registers left for the exponentials.
#if defined(__AVX512F__)
constexpr int kSums = 16, kForwardKeys = 2, kBackwardKeys = 4, kHeld = 32;
#elif defined(__AVX__)
constexpr int kSums = 8, kForwardKeys = 2, kBackwardKeys = 2, kHeld = 4;
#else
constexpr int kSums = 4, kForwardKeys = 2, kBackwardKeys = 2, kHeld = 2;
#endif

struct FloatLane {
  using Lane = float;
  static constexpr int kPairs = 1;  // summed elements per lane
  static f32x16 multiply_add(f32x16 acc, float a, const float* b) { return acc + a * load(b); }
  // Stores vector `vector` of a row that is summed along the row.
  static void store_row(float* row, int vector, f32x16 x) { store(row + vector * kVector, x); }
  // Stores rows 2 i and 2 i + 1 of a tile that is summed over rows.
  static void store_pair(float* tile, int row_lanes, int vector, f32x16 even, f32x16 odd) {
    store(tile + vector * kVector, even);
    store(tile + row_lanes + vector * kVector, odd);
  }
};

#if ASSAY_AVX512_BF16
struct PairLane {
  using Lane = uint32_t;
  static constexpr int kPairs = 2;
  static f32x16 multiply_add(f32x16 acc, uint32_t a, const uint32_t* b) {
    const __m512i pairs = _mm512_loadu_si512(b);
    return std::bit_cast<f32x16>(_mm512_dpbf16_ps(
        std::bit_cast<__m512>(acc), std::bit_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))),
        std::bit_cast<__m512bh>(pairs)));
  }
  static void store_row(uint32_t* row, int vector, f32x16 x) {
    store(reinterpret_cast<bf16*>(row) + vector * kVector, x);
  }
  static void store_pair(uint32_t* tile, int, int vector, f32x16 even, f32x16 odd) {
    // Rounds both into one register, then interleaves them.
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512bh both =
        _mm512_cvtne2ps_pbh(std::bit_cast<__m512>(odd), std::bit_cast<__m512>(even));
    _mm512_storeu_si512(tile + vector * kVector,
                        _mm512_permutexvar_epi16(order, std::bit_cast<__m512i>(both)));
  }
};
template <typename T>
using LaneOf = std::conditional_t<std::is_same_v<T, bf16>, PairLane, FloatLane>;
#else
template <typename T>
using LaneOf = FloatLane;
#endif

// Rows of a packed tensor: `count` rows have data, the rest of the tile is zero.
template <typename T>
struct Rows {
  const T* first;
  int64_t stride;
  int count;
};

// tile[row][step] = elements of the row, kPairs per lane. row_at(r): pointer to row r, or null for
// zeros.
template <typename L, int D, typename RowAt>
inline void load_rows_at(typename L::Lane (*tile)[D / L::kPairs], RowAt&& row_at) {
  for (int r = 0; r < kTile; ++r) {
    const auto* row = row_at(r);
    if (row == nullptr) {
      std::memset(tile[r], 0, sizeof tile[r]);
    } else if constexpr (L::kPairs == 2) {
      // By whole vectors: a load of 64 bytes waits for two stores of 32.
      for (int d = 0; d < D; d += 2 * kVector) {
        u32x16 pairs;
        std::memcpy(&pairs, row + d, sizeof pairs);
        std::memcpy(tile[r] + d / 2, &pairs, sizeof pairs);
      }
    } else {
      for (int d = 0; d < D; d += kVector) store(tile[r] + d, load(row + d));
    }
  }
}
template <typename L, int D, typename T>
inline void load_rows(typename L::Lane (*tile)[D / L::kPairs], const Rows<T>& rows) {
  load_rows_at<L, D>(tile, [&](int r) -> const T* {
    return r < rows.count ? rows.first + r * rows.stride : nullptr;
  });
}

// tile[row / kPairs][d] = element d of kPairs adjacent rows, from the output of load_rows.
template <typename L, int D>
inline void pair_rows(typename L::Lane (*tile)[D], const typename L::Lane (*rows)[D / L::kPairs]) {
  if constexpr (L::kPairs == 1) {
    std::memcpy(tile, rows, sizeof(typename L::Lane) * kTile * D);
  } else {
    for (int r = 0; r < kTile / 2; ++r) {
      for (int d = 0; d < D; d += kVector) {
        u16x16 even, odd;
        std::memcpy(&even, reinterpret_cast<const uint16_t*>(rows[2 * r]) + d, sizeof even);
        std::memcpy(&odd, reinterpret_cast<const uint16_t*>(rows[2 * r + 1]) + d, sizeof odd);
        const u32x16 pair = widen(even) | (widen(odd) << 16);
        std::memcpy(tile[r] + d, &pair, sizeof pair);
      }
    }
  }
}

namespace detail {

// A register of the CPU.
#if defined(__AVX512F__)
constexpr int kWords = kVector;
#else
constexpr int kWords = kLanes;
#endif
using Words = uint32_t __attribute__((vector_size(4 * kWords)));
using Order = int32_t __attribute__((vector_size(4 * kWords)));

// Lane i is element at[i] of a followed by b.
inline Words shuffle(Words a, Words b, Order at) {
#if defined(__clang__)  // has no __builtin_shuffle
  Words out;
  for (int i = 0; i < kWords; ++i) out[i] = at[i] < kWords ? a[at[i]] : b[at[i] - kWords];
  return out;
#else
  return __builtin_shuffle(a, b, at);
#endif
}

// Exchanges bit S of the row number with bit S of the lane number, for all rows.
template <int S>
inline void transpose_stage(Words (&v)[kWords]) {
  Order low, high;
  for (int i = 0; i < kWords; ++i) {
    low[i] = (i & S) != 0 ? kWords + (i ^ S) : i;
    high[i] = (i & S) != 0 ? kWords + i : (i | S);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kWords; ++r) {
    if ((r & S) != 0) continue;
    const Words a = v[r], b = v[r | S];
    v[r] = shuffle(a, b, low);
    v[r | S] = shuffle(a, b, high);
  }
}

}  // namespace detail

// tile[step][row], from the output of load_rows.
template <int Steps, typename Lane>
inline void transpose_rows(Lane (*tile)[kTile], const Lane (*rows)[Steps]) {
  using detail::kWords;
  for (int r0 = 0; r0 < kTile; r0 += kWords) {
    for (int s0 = 0; s0 < Steps; s0 += kWords) {
      detail::Words v[kWords];
#pragma GCC unroll 16
      for (int r = 0; r < kWords; ++r) std::memcpy(&v[r], rows[r0 + r] + s0, sizeof v[r]);
      detail::transpose_stage<1>(v);
      detail::transpose_stage<2>(v);
      if constexpr (kWords > 4) detail::transpose_stage<4>(v);
      if constexpr (kWords > 8) detail::transpose_stage<8>(v);
#pragma GCC unroll 16
      for (int s = 0; s < kWords; ++s) std::memcpy(tile[s0 + s] + r0, &v[s], sizeof v[s]);
    }
  }
}

// The innermost loop, where the time is spent: R x V sums, from column First on as many at a time
// as there are registers for.
template <typename L, int R, int V, int RowStride, int StepStride, int VectorStride, int First = 0>
[[gnu::always_inline]] inline void accumulate(f32x16 (&acc)[R][V], const typename L::Lane* a,
                                              const typename L::Lane* b, int begin, int end) {
  constexpr int kCount = std::min(std::max(kHeld / R, 1), V - First);
  const auto sum_steps = [&](auto& sum, int column) {
    for (int step = begin; step < end; ++step) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kCount; ++v) {
          sum[r][v] = L::multiply_add(sum[r][v], a[r * RowStride + step * StepStride],
                                      b + step * VectorStride + (column + v) * kVector);
        }
      }
    }
  };
  if constexpr (kCount == V) {
    sum_steps(acc, 0);
  } else {
    f32x16 sum[R][kCount];
#pragma GCC unroll 16
    for (int i = 0; i < R * kCount; ++i)
      sum[i / kCount][i % kCount] = acc[i / kCount][First + i % kCount];
    sum_steps(sum, First);
#pragma GCC unroll 16
    for (int i = 0; i < R * kCount; ++i)
      acc[i / kCount][First + i % kCount] = sum[i / kCount][i % kCount];
    if constexpr (First + kCount < V) {
      accumulate<L, R, V, RowStride, StepStride, VectorStride, First + kCount>(acc, a, b, begin,
                                                                               end);
    }
  }
}

}  // namespace assay::attention
