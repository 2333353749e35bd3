// Vectorised draws from one stream, for the inner loops of the CPU ops: the numbers of
// base/random.h, bit for bit.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace assay {

constexpr int64_t kBlocksDrawn = 16;                // generator blocks drawn together, one per lane
constexpr int64_t kHalvesDrawn = 8 * kBlocksDrawn;  // 16-bit halves in them

// words[w][j] = word w of random_block(key, first_block + j stride), base/random.h.
inline void draw_words(const RandomKey& key, uint64_t first_block, uint64_t stride,
                       uint32_t (&words)[4][kBlocksDrawn]) {
  uint32_t c0[kBlocksDrawn], c1[kBlocksDrawn], c2[kBlocksDrawn], c3[kBlocksDrawn];
  for (int64_t j = 0; j < kBlocksDrawn; ++j) {
    const uint64_t block = first_block + static_cast<uint64_t>(j) * stride;
    c0[j] = static_cast<uint32_t>(block);
    c1[j] = static_cast<uint32_t>(block >> 32);
    c2[j] = static_cast<uint32_t>(key.stream);
    c3[j] = static_cast<uint32_t>(key.stream >> 32);
  }
  const uint64_t k = key.seed + uint64_t{key.step} * 0x9E3779B97F4A7C15u;
  uint32_t k0 = static_cast<uint32_t>(k), k1 = static_cast<uint32_t>(k >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t j = 0; j < kBlocksDrawn; ++j) {
      const uint64_t a = uint64_t{0xD2511F53u} * c0[j];
      const uint64_t b = uint64_t{0xCD9E8D57u} * c2[j];
      c0[j] = static_cast<uint32_t>(b >> 32) ^ c1[j] ^ k0;
      c1[j] = static_cast<uint32_t>(b);
      c2[j] = static_cast<uint32_t>(a >> 32) ^ c3[j] ^ k1;
      c3[j] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int64_t j = 0; j < kBlocksDrawn; ++j) {
    words[0][j] = c0[j];
    words[1][j] = c1[j];
    words[2][j] = c2[j];
    words[3][j] = c3[j];
  }
}

// half[i]: half word i of blocks first_block, first_block + stride, ...; the low half of a word
// first.
inline void draw_halves(const RandomKey& key, uint64_t first_block, uint16_t (&half)[kHalvesDrawn],
                        uint64_t stride = 1) {
  uint32_t words[4][kBlocksDrawn];
  draw_words(key, first_block, stride, words);
  for (int64_t j = 0; j < kBlocksDrawn; ++j) {
    for (int64_t h = 0; h < 8; ++h) {
      half[8 * j + h] = static_cast<uint16_t>(words[h / 2][j] >> (h % 2 * 16));
    }
  }
}

}  // namespace assay
