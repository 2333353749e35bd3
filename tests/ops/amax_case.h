// What the case lists of ops share that raise a word to the largest magnitude of what they store.
#pragma once

#include <algorithm>
#include <bit>

#include "ops/quantise/scale.h"
#include "tests/ops/op_case.h"

namespace assay {

// The word as another op may have left it.
inline View<float, 1> amax_word(Workbench& bench) {
  const View<float, 1> word = bench.acc<float, 1>("amax", {1}, {Fill::kZero});
  word[0] = 0x1p-9f;
  bench.commit();
  return word;
}

template <typename T>
uint32_t largest_stored(const T* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, magnitude_bits(float(x[i])));
  return most;
}

// Bits, so that NaN counts. largest: of what was stored. Nothing where the case does not ask.
inline void check_amax(Report& report, const View<float, 1>& word, uint32_t largest) {
  if (word.empty()) return;
  const uint32_t want = std::max(largest, magnitude_bits(0x1p-9f));
  report.below("amax has other bits", std::bit_cast<uint32_t>(word[0]) == want ? 0 : 1, 0.5);
}
template <typename T>
void check_amax(Report& report, const View<float, 1>& word, const View<T, 2>& stored) {
  check_amax(report, word, word.empty() ? 0 : largest_stored(stored.data, stored.size()));
}

}  // namespace assay
