// Scalar reference of ops/muon.h, line by line as in the formula.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace assay::ref {

struct Muon {
  double b, g;

  // Returns u before its rounding to bf16.
  double momentum(double mu, bool nesterov) {
    b = b + (1 - mu) * (g - b);
    return nesterov ? g + mu * (b - g) : b;
  }
};

inline double muon_match_rms(int64_t rows, int64_t cols) {
  return 0.2 * std::sqrt(double(std::max(rows, cols)));
}
inline double muon_original(int64_t rows, int64_t cols) {
  return std::sqrt(std::max(1.0, double(rows) / double(cols)));
}

}  // namespace assay::ref
