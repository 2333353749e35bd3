// The median of some values.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

namespace assay {

// The value in the middle, or the mean of the two there; NaN of none. No value may be NaN.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return 0.5 * (*std::max_element(values.begin(), middle) + *middle);
}

}  // namespace assay
