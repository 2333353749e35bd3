// AdamW (ops/adamw.h, the same formula and arithmetic) on a tensor whose weight is its own master:
// weight and both moments are bf16. Each is read as float, stepped in float, and rounded
// stochastically when it is stored:
//
//   bits = (bits of the float + r) >> 16, r uniform in [0, 2^16)
//
// so the mean over many draws is the float value, and steps far below half a unit of a weight are
// kept on average. Values that bf16 has, 0 among them, are stored as they are; infinities and NaN
// stay.
//
// r of element i, counted from the parameter's first, is the half word i mod 8 of block
// 3 (i / 8) + k of the counter-based generator (base/random.h), the low half of a word first; k = 0
// for weight, 1 for m, 2 for v. The bits depend on the key and the element only.
//
// `squares` as in AdamW: of grad, of the update before rounding, and of the weight as stored.
//
// Bound by memory: 16 bytes per element (4 of grad, 6 read and 6 written), where AdamW with a bf16
// weight moves 30. Reference: tests/ref/adamw.h, and base/bf16.h for the rounding.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/adamw.h"

namespace assay {

struct AdamWBf16 {
  View<bf16, 1> weight;                  // acc (n)   p
  View<bf16, 1> m;                       // acc (n)
  View<bf16, 1> v;                       // acc (n)
  View<const float, 1> grad;             // in  (n)
  View<const float, 1> grad_scale = {};  // in  (1)   optional, e.g. the clip factor
  View<double, 2> squares = {};  // out (adamw_pieces(n), 3)   grad^2, update^2, p^2; optional
  float lr;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  int64_t step;       // t, from 1
  RandomKey key;      // of the parameter in this step
  int64_t first = 0;  // number of grad's first element in the parameter, a multiple of kAdamWDraw
};

inline constexpr int kAdamWDraw = 8;     // elements whose bits come from the same blocks
inline constexpr int kAdamWRounded = 3;  // blocks for them: one each for weight, m and v

void adamw_bf16(Exec on, const AdamWBf16& a);

inline Cost adamw_bf16_cost(const AdamWBf16& a) {
  return {.bytes = view_bytes(a.grad, a.grad_scale, a.squares) + 6 * view_bytes(a.weight),
          .flops = 14.0 * double(a.grad.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (adamw_bf16.cu).
namespace gpu {
void adamw_bf16(Exec on, const AdamWBf16& a);
}  // namespace gpu

}  // namespace assay
