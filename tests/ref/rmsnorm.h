// Scalar reference of ops/rmsnorm.h: plain loops, templated on the number type. Its gradient is
// proved by complex step in tests/ops/rmsnorm_cases.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct RmsNorm {
  int64_t rows, width;
  double eps;
  std::vector<S> y, rstd;  // (rows, width), (rows)

  void forward(const std::vector<S>& r, const std::vector<S>& weight) {
    y.assign(r.size(), S(0));
    rstd.assign(size_t(rows), S(0));
    for (int64_t i = 0; i < rows; ++i) {
      S squares = 0;
      for (int64_t c = 0; c < width; ++c)
        squares += r[size_t(i * width + c)] * r[size_t(i * width + c)];
      rstd[size_t(i)] = S(1) / std::sqrt(squares / double(width) + eps);
      for (int64_t c = 0; c < width; ++c) {
        y[size_t(i * width + c)] = weight[size_t(c)] * r[size_t(i * width + c)] * rstd[size_t(i)];
      }
    }
  }

  // dr (rows, width), dweight (width): the gradients that the op adds. Call forward first.
  void backward(const std::vector<S>& r, const std::vector<S>& weight, const std::vector<S>& dy,
                std::vector<S>& dr, std::vector<S>& dweight) const {
    dr.assign(r.size(), S(0));
    dweight.assign(weight.size(), S(0));
    for (int64_t i = 0; i < rows; ++i) {
      S mean = 0;
      for (int64_t c = 0; c < width; ++c) {
        const size_t k = size_t(i * width + c);
        mean += weight[size_t(c)] * dy[k] * r[k] * rstd[size_t(i)] / double(width);
      }
      for (int64_t c = 0; c < width; ++c) {
        const size_t k = size_t(i * width + c);
        const S rhat = r[k] * rstd[size_t(i)];
        dr[k] = rstd[size_t(i)] * (weight[size_t(c)] * dy[k] - rhat * mean);
        dweight[size_t(c)] += dy[k] * rhat;
      }
    }
  }
};

}  // namespace assay::ref
