// The factor of a matrix product: the tensor scales that quantisation left out of its operands, in
// the memory of the device that multiplies, and a gain that the host knows. The sum is multiplied
// by left[0] right[0] gain (in float, in this order) before anything is added to it and before it
// is rounded. Without a factor the sum starts from what is added.
#pragma once

#include "base/check.h"
#include "base/view.h"

namespace assay {

// 1 / S, S as ops/quantise.h writes them, of the left and of the right operand; empty: 1.
struct ProductScale {
  View<const float, 1> left = {};   // in (2)
  View<const float, 1> right = {};  // in (2)
  float gain = 1.0f;

  constexpr size_t bytes() const { return left.bytes() + right.bytes(); }
  constexpr bool of_operands() const { return !left.empty() || !right.empty(); }
  constexpr bool empty() const { return !of_operands() && gain == 1.0f; }
  // Reads device memory: call it where the product runs.
  constexpr float factor() const {
    return (left.empty() ? 1.0f : left[0]) * (right.empty() ? 1.0f : right[0]) * gain;
  }
};

inline void check_product_scale(const char* op, const ProductScale& s) {
  CHECK((s.left.empty() || s.left.dim[0] == 2) && (s.right.empty() || s.right.dim[0] == 2),
        "%s: scale: left (%ld), right (%ld)", op, long(s.left.dim[0]), long(s.right.dim[0]));
}

}  // namespace assay
