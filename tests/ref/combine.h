// Scalar reference of ops/combine.h: y (N, C) = add + sum over K of gate * expert_out[slot]. Its
// gradients are proved by complex step in tests/ops/combine_cases.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct Combine {
  int64_t tokens, width, k;
  std::vector<int64_t> slot;  // (tokens, k)

  size_t at(int64_t t, int64_t i, int64_t c) const {
    return size_t(slot[size_t(t * k + i)] * width + c);
  }

  // expert_out (N K, C), gate (N, K), add (N, C) or empty.
  std::vector<S> forward(const std::vector<S>& expert_out, const std::vector<S>& gate,
                         const std::vector<S>& add) const {
    std::vector<S> y = add.empty() ? std::vector<S>(size_t(tokens * width), S(0)) : add;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t c = 0; c < width; ++c) {
          y[size_t(t * width + c)] += gate[size_t(t * k + i)] * expert_out[at(t, i, c)];
        }
      }
    }
    return y;
  }

  void backward(const std::vector<S>& expert_out, const std::vector<S>& gate,
                const std::vector<S>& dy, std::vector<S>& dexpert_out,
                std::vector<S>& dgate) const {
    dexpert_out.assign(expert_out.size(), S(0));
    dgate.assign(gate.size(), S(0));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t c = 0; c < width; ++c) {
          const S d = dy[size_t(t * width + c)];
          dexpert_out[at(t, i, c)] = gate[size_t(t * k + i)] * d;
          dgate[size_t(t * k + i)] += d * expert_out[at(t, i, c)];
        }
      }
    }
  }
};

}  // namespace assay::ref
