// Scalar reference of ops/rope.h: angles from their definition, without a table.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct Rope {
  int64_t heads, kv_heads, head_dim, sequence;
  double theta;
  std::vector<int32_t> position = {};  // of each row; empty: row mod sequence

  // sign = 1 rotates, -1 rotates back (the gradient).
  void rotate(std::vector<S>& qkv, double sign) const {
    const int64_t stride = (heads + 2 * kv_heads) * head_dim, half = head_dim / 2;
    for (int64_t i = 0; i < int64_t(qkv.size()) / stride; ++i) {
      const int64_t t = position.empty() ? i % sequence : position[size_t(i)];
      for (int64_t h = 0; h < heads + kv_heads; ++h) {
        for (int64_t d = 0; d < half; ++d) {
          const double angle =
              sign * double(t) * std::pow(theta, -2.0 * double(d) / double(head_dim));
          S& low = qkv[size_t(i * stride + h * head_dim + d)];
          S& high = qkv[size_t(i * stride + h * head_dim + d + half)];
          const S x = low, y = high;
          low = x * std::cos(angle) - y * std::sin(angle);
          high = y * std::cos(angle) + x * std::sin(angle);
        }
      }
    }
  }
};

}  // namespace assay::ref
