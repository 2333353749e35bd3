// Scalar reference of ops/varlen_attention.h, one query at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

struct VarlenAttention {
  int64_t heads, kv_heads, head_dim, qkv_width, prefix_width, prefix_column;

  // A key seen by a query: its matrix (qkv or prefix) and the index of the first element of k. v is
  // kv_heads * head_dim elements further.
  struct Key {
    const std::vector<double>* from;
    size_t at;
  };

  // The probabilities of one query; `largest` receives the largest sum of |q k| / sqrt(D), for the
  // error of the scores.
  std::vector<double> row(const double* q, const std::vector<Key>& keys, double& largest) const {
    std::vector<double> p;
    double top = -INFINITY, sum = 0;
    largest = 0;
    for (const Key& key : keys) {
      double s = 0, abs_sum = 0;
      for (size_t d = 0; d < size_t(head_dim); ++d) {
        const double term = q[d] * (*key.from)[key.at + d] / std::sqrt(double(head_dim));
        s += term;
        abs_sum += std::abs(term);
      }
      p.push_back(s);
      top = std::max(top, s);
      largest = std::max(largest, abs_sum);
    }
    for (double& s : p) sum += s = std::exp(s - top);
    for (double& s : p) s /= sum;
    return p;
  }
};

}  // namespace assay::ref
