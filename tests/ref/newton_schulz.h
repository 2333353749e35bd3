// Scalar reference of ops/newton_schulz.h: one matrix, in double. `round` is applied wherever the
// op stores a tensor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

using Matrix = std::vector<double>;  // row-major

inline Matrix transposed(const Matrix& x, int64_t rows, int64_t cols) {
  Matrix t(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[size_t(j * rows + i)] = x[size_t(i * cols + j)];
  return t;
}

// (m, k) times (k, n)
inline Matrix multiplied(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Matrix c(size_t(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        c[size_t(i * n + j)] += a[size_t(i * k + l)] * b[size_t(l * n + j)];
  return c;
}

template <typename Round>
Matrix newton_schulz(Matrix x, int64_t rows, int64_t cols, int64_t steps, Round round) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  if (rows > cols) {
    return transposed(newton_schulz(transposed(x, rows, cols), cols, rows, steps, round), cols,
                      rows);
  }
  const auto rounded = [&](Matrix y) {
    for (double& e : y) e = round(e);
    return y;
  };
  double sum = 0;
  for (const double e : x) sum += e * e;
  for (double& e : x) e = round(e / std::max(std::sqrt(sum), 1e-7));
  for (int64_t s = 0; s < steps; ++s) {
    Matrix b = rounded(multiplied(x, transposed(x, rows, cols), rows, cols, rows));
    const Matrix square = rounded(multiplied(b, b, rows, rows, rows));
    for (size_t i = 0; i < b.size(); ++i) b[i] = round(kB * b[i] + kC * square[i]);
    const Matrix product = rounded(multiplied(b, x, rows, rows, cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = round(kA * x[i] + product[i]);
  }
  return x;
}

}  // namespace assay::ref
