// Scalar reference of ops/dispatch.h: std::stable_sort of the assignments by expert.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace assay::ref {

struct Dispatch {
  std::vector<int64_t> offsets, token, slot;  // (E + 1), (N K) by slot, (N K) by (t, k)

  // expert (N K), ordered by (t, k).
  Dispatch(const std::vector<int64_t>& expert, int64_t experts, int64_t k)
      : offsets(size_t(experts) + 1), token(expert.size()), slot(expert.size()) {
    std::vector<size_t> order(expert.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t i, size_t j) { return expert[i] < expert[j]; });
    for (size_t s = 0; s < order.size(); ++s) {
      token[s] = int64_t(order[s]) / k;
      slot[order[s]] = int64_t(s);
    }
    for (const int64_t e : expert) {
      for (int64_t after = e + 1; after <= experts; ++after) ++offsets[size_t(after)];
    }
  }
};

}  // namespace assay::ref
