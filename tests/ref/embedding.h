// Scalar reference of ops/embedding.h.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct Embedding {
  int64_t width;
  double gain;
  std::vector<int32_t> token;

  std::vector<S> forward(const std::vector<S>& weight) const {
    std::vector<S> y;
    for (const int32_t t : token) {
      for (int64_t c = 0; c < width; ++c) y.push_back(gain * weight[size_t(t * width + c)]);
    }
    return y;
  }

  // Adds the gradient to dweight.
  void backward(const std::vector<S>& dy, std::vector<S>& dweight) const {
    for (size_t i = 0; i < token.size(); ++i) {
      for (int64_t c = 0; c < width; ++c) {
        dweight[size_t(token[i] * width + c)] += gain * dy[i * size_t(width) + size_t(c)];
      }
    }
  }
};

}  // namespace assay::ref
