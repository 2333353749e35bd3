// Scalar reference of ops/linear.h: loops, templated on the number type. Its gradient is proved by
// complex step in tests/ops/linear_cases.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct Linear {
  int64_t rows, out, in;
  S scale = 1;  // left[1] right[1]

  std::vector<S> forward(const std::vector<S>& x, const std::vector<S>& weight) const {
    std::vector<S> y(size_t(rows * out), S(0));
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t o = 0; o < out; ++o) {
        S sum = 0;
        for (int64_t i = 0; i < in; ++i) sum += x[size_t(n * in + i)] * weight[size_t(o * in + i)];
        y[size_t(n * out + o)] = scale * sum;
      }
    }
    return y;
  }

  std::vector<S> dgrad(const std::vector<S>& dy, const std::vector<S>& weight) const {
    std::vector<S> dx(size_t(rows * in), S(0));
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t o = 0; o < out; ++o) {
        const S g = scale * dy[size_t(n * out + o)];
        for (int64_t i = 0; i < in; ++i) dx[size_t(n * in + i)] += g * weight[size_t(o * in + i)];
      }
    }
    return dx;
  }

  // The gradient (out, in) that the op adds to dweight.
  std::vector<S> wgrad(const std::vector<S>& dy, const std::vector<S>& x) const {
    std::vector<S> dweight(size_t(out * in), S(0));
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t o = 0; o < out; ++o) {
        const S g = scale * dy[size_t(n * out + o)];
        for (int64_t i = 0; i < in; ++i) dweight[size_t(o * in + i)] += g * x[size_t(n * in + i)];
      }
    }
    return dweight;
  }
};

}  // namespace assay::ref
