// Conversion between float and bf16.
//
//   cast<bf16, float>    round to nearest even; NaN stays NaN
//   cast<float, bf16>    exact
//
// Reference: base/bf16.h, element by element (tests/ref/cast.h).
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename To, typename From>
struct Cast {
  View<To, 1> y;          // out (n)
  View<const From, 1> x;  // in  (n)
};

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a);

template <typename To, typename From>
Cost cast_cost(const Cast<To, From>& a) {
  return {.bytes = view_bytes(a.x, a.y), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (cast.cu).
namespace gpu {
void cast(Exec on, const Cast<bf16, float>& a);
void cast(Exec on, const Cast<float, bf16>& a);
}  // namespace gpu

}  // namespace assay
