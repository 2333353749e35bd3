// Scalar reference of ops/global_norm.h.
#pragma once

#include <cmath>
#include <vector>

namespace assay::ref {

struct GlobalNorm {
  long double squares = 0;
  long non_finite = 0;

  void add(const std::vector<double>& g) {
    for (const double x : g) {
      squares += static_cast<long double>(x) * x;
      if (!std::isfinite(x)) ++non_finite;
    }
  }
  double norm() const { return static_cast<double>(std::sqrt(squares)); }
  double clip(double max_norm) const {
    return max_norm > 0 && norm() > max_norm ? max_norm / norm() : 1.0;
  }
};

}  // namespace assay::ref
