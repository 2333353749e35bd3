// Conversion between float and bf16.
//
//   cast<bf16, float>    round to nearest even; NaN stays NaN
//   cast<float, bf16>    exact
//   cast_stochastic      (bits + r) >> 16, r uniform in [0, 2^16): the mean over many draws is x
//
// r of element i is a half word of the counter-based generator (base/random.h): the 16 bits from
// bit 16 (i mod 2) of word (i / 2) mod 4 of block i / 8, i = first + index in x. It depends
// only on the key and the element, so any split into calls gives the same bits. Reference:
// base/bf16.h, element by element (tests/ref/cast.h).
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename To, typename From>
struct Cast {
  View<To, 1> y;          // out (n)
  View<const From, 1> x;  // in  (n)
};

struct CastStochastic {
  View<bf16, 1> y;         // out (n)
  View<const float, 1> x;  // in  (n)
  RandomKey key;
  int64_t first = 0;  // index of x[0] in its tensor
};

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a);
void cast_stochastic(Exec on, const CastStochastic& a);

template <typename To, typename From>
Cost cast_cost(const Cast<To, From>& a) {
  return {.bytes = view_bytes(a.x, a.y), .flops = 0};
}
inline Cost cast_stochastic_cost(const CastStochastic& a) {
  return {.bytes = view_bytes(a.x, a.y), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (cast.cu).
namespace gpu {
void cast(Exec on, const Cast<bf16, float>& a);
void cast(Exec on, const Cast<float, bf16>& a);
void cast_stochastic(Exec on, const CastStochastic& a);
}  // namespace gpu

}  // namespace assay
