// Rows of c as floats: sums of the CPU's matrix unit are floats, 32 to a row of a block.
#pragma once

#include "ops/cpu_gemm/amx_tiles.h"

#if ASSAY_AMX
#include <cstring>

#include "base/bf16.h"

namespace assay::amx {

inline void load_rows(float* to, const float* from, int64_t cols) {
  std::memcpy(to, from, size_t(cols) * sizeof(float));
}
inline void load_rows(float* to, const bf16* from, int64_t cols) {
  for (int64_t j = 0; j < cols; ++j) to[j] = float(from[j]);
}
inline void store_rows(float* to, const float* from, int64_t cols) {
  std::memcpy(to, from, size_t(cols) * sizeof(float));
}
inline void store_rows(bf16* to, const float* from, int64_t cols) {
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

// One row of a whole block; the sums are aligned to 64 bytes.
[[gnu::always_inline]] inline void load_block_row(float* to, const float* from) {
  _mm512_store_ps(to, _mm512_loadu_ps(from));
  _mm512_store_ps(to + kTile, _mm512_loadu_ps(from + kTile));
}
[[gnu::always_inline]] inline void load_block_row(float* to, const bf16* from) {
  const __m512i both = _mm512_loadu_si512(from);
  const auto widened = [](__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  _mm512_store_ps(to, widened(_mm512_castsi512_si256(both)));
  _mm512_store_ps(to + kTile, widened(_mm512_extracti64x4_epi64(both, 1)));
}
[[gnu::always_inline]] inline void store_block_row(float* to, const float* from) {
  _mm512_storeu_ps(to, _mm512_load_ps(from));
  _mm512_storeu_ps(to + kTile, _mm512_load_ps(from + kTile));
}
[[gnu::always_inline]] inline void store_block_row(bf16* to, const float* from) {
  const __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + kTile);
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

}  // namespace assay::amx

#endif
