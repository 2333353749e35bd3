// The 16-point random Hadamard transform, in registers: y = (1/4) H16 D x.
//
// D flips the sign of element i if bit i of `signs` is set; H16[i][j] = (-1)^popcount(i & j). The
// transform is orthogonal: it preserves dot products. The order of the additions is part of the
// definition: pairs at distance 1, then 2, 4, 8.
#pragma once

#include <cstdint>

namespace assay {

constexpr int kHadamard = 16;

enum class HadamardWay { kForward, kInverse };

constexpr void hadamard16(float (&v)[kHadamard], uint32_t signs,
                          HadamardWay way = HadamardWay::kForward) {
  const uint32_t before = way == HadamardWay::kForward ? signs : 0;
  const uint32_t after = way == HadamardWay::kForward ? 0 : signs;
  for (int i = 0; i < kHadamard; ++i) v[i] = before >> i & 1 ? -v[i] : v[i];
  for (int distance = 1; distance < kHadamard; distance *= 2) {
    for (int i = 0; i < kHadamard; ++i) {
      if ((i & distance) != 0) continue;
      const float a = v[i], b = v[i + distance];
      v[i] = a + b;
      v[i + distance] = a - b;
    }
  }
  for (int i = 0; i < kHadamard; ++i) v[i] = (after >> i & 1 ? -v[i] : v[i]) * 0.25f;
}

}  // namespace assay
