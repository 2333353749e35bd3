// Transposition in registers for packing panels.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace assay::panel {

// A store of a whole line of 64 bytes; kPast: past the caches.
template <bool kPast>
inline void store_line(uint32_t* to, __m512i line) {
  if constexpr (kPast) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_storeu_si512(to, line);
  }
}

// 16 words of each of 16 rows, `stride` bytes apart: to[s * width + j] = word s of row j.
template <bool kPast = false>
inline void transpose_16(uint32_t* to, int64_t width, const std::byte* from, int64_t stride) {
  __m512i row[16], pair[16];
  for (int j = 0; j < 16; ++j) row[j] = _mm512_loadu_si512(from + j * stride);
  for (int j = 0; j < 16; j += 2) {  // 2 x 2 words
    pair[j] = _mm512_unpacklo_epi32(row[j], row[j + 1]);
    pair[j + 1] = _mm512_unpackhi_epi32(row[j], row[j + 1]);
  }
  for (int j = 0; j < 16; j += 4) {  // 4 x 4
    for (int h = 0; h < 2; ++h) {
      row[j + 2 * h] = _mm512_unpacklo_epi64(pair[j + h], pair[j + 2 + h]);
      row[j + 2 * h + 1] = _mm512_unpackhi_epi64(pair[j + h], pair[j + 2 + h]);
    }
  }
  for (int w = 0; w < 4; ++w) {  // the 4 x 4 blocks; row[4 i + w] has words w, w + 4, w + 8, w + 12
    const __m512i even = _mm512_shuffle_i32x4(row[w], row[4 + w], 0x88);
    const __m512i odd = _mm512_shuffle_i32x4(row[w], row[4 + w], 0xDD);
    const __m512i even2 = _mm512_shuffle_i32x4(row[8 + w], row[12 + w], 0x88);
    const __m512i odd2 = _mm512_shuffle_i32x4(row[8 + w], row[12 + w], 0xDD);
    store_line<kPast>(to + w * width, _mm512_shuffle_i32x4(even, even2, 0x88));
    store_line<kPast>(to + (w + 4) * width, _mm512_shuffle_i32x4(odd, odd2, 0x88));
    store_line<kPast>(to + (w + 8) * width, _mm512_shuffle_i32x4(even, even2, 0xDD));
    store_line<kPast>(to + (w + 12) * width, _mm512_shuffle_i32x4(odd, odd2, 0xDD));
  }
}

#if defined(__AVX512BW__)
// 16 columns of each of 32 rows of 16-bit elements, `stride` bytes apart:
// to[j * width + s] = the elements 2 s and 2 s + 1 of column j.
inline void transpose_pairs_16(uint32_t* to, int64_t width, const std::byte* from, int64_t stride) {
  for (int half = 0; half < 2; ++half, from += 16, to += 8 * width) {
    // Lane p of row[r]: 8 columns of row 8 p + r. The 8 x 8 elements of each lane are transposed.
    __m512i row[8], other[8];
    for (int r = 0; r < 8; ++r) {
      const auto quarter = [&](int p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (8 * p + r) * stride));
      };
      row[r] = _mm512_castsi128_si512(quarter(0));
      row[r] = _mm512_inserti32x4(row[r], quarter(1), 1);
      row[r] = _mm512_inserti32x4(row[r], quarter(2), 2);
      row[r] = _mm512_inserti32x4(row[r], quarter(3), 3);
    }
    // other[2 r] and other[2 r + 1]: columns 0-3 and 4-7 of the rows 2 r and 2 r + 1.
    for (int r = 0; r < 4; ++r) {
      other[2 * r] = _mm512_unpacklo_epi16(row[2 * r], row[2 * r + 1]);
      other[2 * r + 1] = _mm512_unpackhi_epi16(row[2 * r], row[2 * r + 1]);
    }
    for (int h = 0; h < 2; ++h) {    // of 4 rows
      for (int c = 0; c < 2; ++c) {  // row[4 h + 2 c + i]: columns 4 c + 2 i and the next
        const __m512i low = other[4 * h + c], high = other[4 * h + 2 + c];
        row[4 * h + 2 * c] = _mm512_unpacklo_epi32(low, high);
        row[4 * h + 2 * c + 1] = _mm512_unpackhi_epi32(low, high);
      }
    }
    for (int c = 0; c < 4; ++c) {
      _mm512_storeu_si512(to + 2 * c * width, _mm512_unpacklo_epi64(row[c], row[4 + c]));
      _mm512_storeu_si512(to + (2 * c + 1) * width, _mm512_unpackhi_epi64(row[c], row[4 + c]));
    }
  }
}
#endif

}  // namespace assay::panel

#endif
