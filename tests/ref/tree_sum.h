// Reference of ops/tree_sum.h: its definition, in float because every sum is rounded.
#pragma once

#include <cstddef>
#include <vector>

namespace assay::ref {

// Leaves [begin, end), at least one.
inline float tree_sum(const std::vector<float>& leaf, size_t begin, size_t end) {
  if (end - begin == 1) return leaf[begin];
  size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(leaf, begin, begin + half) + tree_sum(leaf, begin + half, end);
}

}  // namespace assay::ref
