// Transposition in registers for packing panels.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace assay::panel {

// 16 words of each of 16 rows, `stride` bytes apart: to[s * width + j] = word s of row j.
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
    _mm512_storeu_si512(to + w * width, _mm512_shuffle_i32x4(even, even2, 0x88));
    _mm512_storeu_si512(to + (w + 4) * width, _mm512_shuffle_i32x4(odd, odd2, 0x88));
    _mm512_storeu_si512(to + (w + 8) * width, _mm512_shuffle_i32x4(even, even2, 0xDD));
    _mm512_storeu_si512(to + (w + 12) * width, _mm512_shuffle_i32x4(odd, odd2, 0xDD));
  }
}

}  // namespace assay::panel

#endif
