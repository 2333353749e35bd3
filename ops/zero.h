// Sets memory to zero: gradients, counts and sums at the start of a step.
#pragma once

#include <cstddef>

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

struct Zero {
  View<std::byte, 1> x;  // out (bytes)
};

void zero(Exec on, const Zero& a);

template <typename T, int Rank>
void zero(Exec on, View<T, Rank> x) {
  zero(on, Zero{.x = {reinterpret_cast<std::byte*>(x.data), {int64_t(x.bytes())}}});
}

inline Cost zero_cost(const Zero& a) {
  return {.bytes = view_bytes(a.x), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (zero.cu).
namespace gpu {
void zero(Exec on, const Zero& a);
}  // namespace gpu

}  // namespace assay
