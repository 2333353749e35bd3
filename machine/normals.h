// Inputs of measurements: normal numbers, like those of the ops' cases. Products of constants or
// of short patterns change fewer bits, which takes less power.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace assay {

// N(0, 1), the same 65,521 again and again: to draw millions would take longer than to measure.
template <typename T>
void fill_normal(T* to, int64_t count) {
  constexpr int64_t kDrawn = 65521;  // a prime: few rows of a matrix are equal
  std::vector<T> drawn(size_t(std::min(count, kDrawn)));
  for (size_t i = 0; i < drawn.size(); ++i) {
    drawn[i] = T(float(random_normal({1, stream_id("measured"), 0}, i)));
  }
  for (int64_t i = 0; i < count; i += kDrawn) {
    std::copy_n(drawn.data(), std::min(kDrawn, count - i), to + i);
  }
}

}  // namespace assay
