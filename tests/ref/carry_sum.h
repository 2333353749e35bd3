// Reference of ops/carry_sum.h: each sum of two floats is rounded once, as their exact sum in
// double is when it is converted.
#pragma once

#include <vector>

namespace assay::ref {

// all: own, then earlier_0, earlier_1, ... of one element.
inline float carried_sum(const std::vector<double>& all) {
  float sum = static_cast<float>(all.front());
  for (size_t l = 1; l < all.size(); ++l) sum = static_cast<float>(double(sum) + all[l]);
  return sum;
}

}  // namespace assay::ref
