// Scalar reference of ops/swiglu.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct Swiglu {
  int64_t rows, width;

  std::vector<S> forward(const std::vector<S>& gate_up) const {
    std::vector<S> h;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t f = 0; f < width; ++f) {
        const S g = gate_up[size_t(2 * i * width + f)];
        h.push_back(g / (S(1) + std::exp(-g)) * gate_up[size_t((2 * i + 1) * width + f)]);
      }
    }
    return h;
  }

  std::vector<S> backward(const std::vector<S>& dh, const std::vector<S>& gate_up) const {
    std::vector<S> dgate_up(gate_up.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t f = 0; f < width; ++f) {
        const size_t gate = size_t(2 * i * width + f), up = gate + size_t(width);
        const S d = dh[size_t(i * width + f)], g = gate_up[gate];
        const S sigmoid = S(1) / (S(1) + std::exp(-g));
        dgate_up[gate] = d * gate_up[up] * sigmoid * (S(1) + g * (S(1) - sigmoid));
        dgate_up[up] = d * g * sigmoid;
      }
    }
    return dgate_up;
  }
};

}  // namespace assay::ref
