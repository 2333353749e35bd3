// Shared by the case lists of ops that update an amax slot with the largest magnitude they store.
#pragma once

#include <algorithm>
#include <bit>

#include "ops/quantise/scale.h"
#include "tests/ops/op_case.h"

namespace assay {

// An amax slot with a value that another op may have left in it.
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

// Compares bits, so that NaN counts. largest: magnitude_bits of the stored values. Does nothing if
// the case has no slot.
inline void check_amax(Report& report, const View<float, 1>& word, uint32_t largest) {
  if (word.empty()) return;
  const uint32_t want = std::max(largest, magnitude_bits(0x1p-9f));
  report.below("amax bits differ", std::bit_cast<uint32_t>(word[0]) == want ? 0 : 1, 0.5);
}
template <typename T>
void check_amax(Report& report, const View<float, 1>& word, const View<T, 2>& stored) {
  check_amax(report, word, word.empty() ? 0 : largest_stored(stored.data, stored.size()));
}

}  // namespace assay
