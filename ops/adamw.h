// One step of AdamW (Loshchilov and Hutter, 2019) on one tensor: decoupled decay, then the
// bias-corrected update.
//
//   g = grad * grad_scale                  p -= lr * weight_decay * p
//   m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
//   p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)      weight = p rounded to T
//
// With `squares`, the same pass sums in double, piece by piece, the squares of grad (before
// grad_scale), of the total update subtracted from p, and of p after the step. The other results
// keep their bits.
//
// Arithmetic is in float, that of the step's constants in double. Reference: tests/ref/adamw.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/math.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct AdamW {
  View<float, 1> master;                 // acc (n)   p
  View<float, 1> m;                      // acc (n)
  View<float, 1> v;                      // acc (n)
  View<T, 1> weight = {};                // out (n)   empty if the master is the weight
  View<const float, 1> grad;             // in  (n)
  View<const float, 1> grad_scale = {};  // in  (1)   optional, e.g. the clip factor
  View<double, 2> squares = {};  // out (adamw_pieces(n), 3)   grad^2, update^2, p^2; optional
  float lr;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  int64_t step;  // t, from 1
};

inline constexpr int64_t kAdamWPiece = 16384;  // elements of one row of squares
constexpr int64_t adamw_pieces(int64_t n) {
  return ceil_div(n, kAdamWPiece);
}

template <typename T>
void adamw(Exec on, const AdamW<T>& a);

template <typename T>
Cost adamw_cost(const AdamW<T>& a) {
  return {.bytes = view_bytes(a.weight, a.grad, a.grad_scale, a.squares) + 6 * view_bytes(a.master),
          .flops = 14.0 * double(a.grad.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (adamw.cu).
namespace gpu {
void adamw(Exec on, const AdamW<float>& a);
void adamw(Exec on, const AdamW<bf16>& a);
}  // namespace gpu

}  // namespace assay
