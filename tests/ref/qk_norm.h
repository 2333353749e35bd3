// Scalar reference of ops/qk_norm.h: tests/ref/rmsnorm.h on the heads of q, then on the heads of k.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/ref/rmsnorm.h"

namespace assay::ref {

template <typename S>
struct QkNorm {
  int64_t tokens, heads, kv_heads, head_dim;
  double eps;
  RmsNorm<S> q{}, k{};

  void forward(std::vector<S>& qkv, const std::vector<S>& q_weight,
               const std::vector<S>& k_weight) {
    q = {tokens * heads, head_dim, eps, {}, {}};
    k = {tokens * kv_heads, head_dim, eps, {}, {}};
    q.forward(part(qkv, 0, heads), q_weight);
    k.forward(part(qkv, heads, kv_heads), k_weight);
    put(qkv, q.y, 0, heads);
    put(qkv, k.y, heads, kv_heads);
  }

  // raw: qkv before forward. dqkv becomes the gradient of raw; dq_weight and dk_weight receive the
  // gradients that the op adds.
  void backward(const std::vector<S>& raw, const std::vector<S>& q_weight,
                const std::vector<S>& k_weight, std::vector<S>& dqkv, std::vector<S>& dq_weight,
                std::vector<S>& dk_weight) const {
    std::vector<S> dq, dk;
    q.backward(part(raw, 0, heads), q_weight, part(dqkv, 0, heads), dq, dq_weight);
    k.backward(part(raw, heads, kv_heads), k_weight, part(dqkv, heads, kv_heads), dk, dk_weight);
    put(dqkv, dq, 0, heads);
    put(dqkv, dk, heads, kv_heads);
  }

  // Heads [first, first + count) of every token.
  std::vector<S> part(const std::vector<S>& qkv, int64_t first, int64_t count) const {
    std::vector<S> rows;
    for (int64_t i = 0; i < tokens; ++i) {
      const auto begin = qkv.begin() + (i * (heads + 2 * kv_heads) + first) * head_dim;
      rows.insert(rows.end(), begin, begin + count * head_dim);
    }
    return rows;
  }
  void put(std::vector<S>& qkv, const std::vector<S>& rows, int64_t first, int64_t count) const {
    for (int64_t i = 0; i < tokens; ++i) {
      std::copy(rows.begin() + i * count * head_dim, rows.begin() + (i + 1) * count * head_dim,
                qkv.begin() + (i * (heads + 2 * kv_heads) + first) * head_dim);
    }
  }
};

}  // namespace assay::ref
