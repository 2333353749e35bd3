// RMSNorm over each head of q and k, before the rotation, in place on the packed qkv tensor.
// Optional in a model.
//
//   rstd[i,h] = 1 / sqrt(mean_d x[i,h,d]^2 + eps)
//   x <- w[d] * x * rstd,  w = q_weight or k_weight
//
// Backward needs the original x, so forward copies q and k (not v) to `raw`; a model without
// QK-norm has no such tensor. The gradient formula is that of ops/rmsnorm.h. Reference:
// tests/ref/qk_norm.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct QkNormForward {
  View<T, 2> raw;       // out (N, (Hq + Hkv) D)     q and k before the norm, kept for backward
  View<float, 2> rstd;  // out (N, Hq + Hkv)         kept for backward
  View<T, 2> qkv;       // acc (N, (Hq + 2 Hkv) D)   q and k normalised in place
  View<const float, 1> q_weight;  // in  (D)
  View<const float, 1> k_weight;  // in  (D)
  int64_t heads;                  // Hq
  int64_t kv_heads;               // Hkv
  int64_t head_dim;               // D
  float eps = 1e-5f;
};

template <typename T>
struct QkNormBackward {
  View<T, 2> dqkv;            // acc (N, (Hq + 2 Hkv) D)   dq and dk replaced in place, turned back
  View<float, 1> amax = {};   // acc (1)   amax slot: raised to max |dq|, |dk| as stored; optional
  View<float, 1> dq_weight;   // acc (D)
  View<float, 1> dk_weight;   // acc (D)
  View<float, 2> partial;     // tmp (qk_norm_backward_blocks(N), 2 D)
  View<const T, 2> raw;       // in  (N, (Hq + Hkv) D)
  View<const float, 2> rstd;  // in  (N, Hq + Hkv)
  View<const float, 1> q_weight;  // in  (D)
  View<const float, 1> k_weight;  // in  (D)
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
};

template <typename T>
void qk_norm_forward(Exec on, const QkNormForward<T>& a);
template <typename T>
void qk_norm_backward(Exec on, const QkNormBackward<T>& a);
// Rows of QkNormBackward::partial for `rows` rows of dqkv.
int64_t qk_norm_backward_blocks(int64_t rows);

// q and k are read, written and copied.
template <typename T>
Cost qk_norm_forward_cost(const QkNormForward<T>& a) {
  return {.bytes = 3.0 * view_bytes(a.raw) + view_bytes(a.rstd, a.q_weight, a.k_weight),
          .flops = 4.0 * double(a.raw.size())};
}
// dq and dk are read and written, raw is read.
template <typename T>
Cost qk_norm_backward_cost(const QkNormBackward<T>& a) {
  return {.bytes = 3.0 * view_bytes(a.raw) + view_bytes(a.rstd, a.q_weight, a.k_weight) +
                   2 * view_bytes(a.dq_weight, a.dk_weight, a.amax),
          .flops = 9.0 * double(a.raw.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (qk_norm.cu).
namespace gpu {
void qk_norm_forward(Exec on, const QkNormForward<float>& a);
void qk_norm_forward(Exec on, const QkNormForward<bf16>& a);
void qk_norm_backward(Exec on, const QkNormBackward<float>& a);
void qk_norm_backward(Exec on, const QkNormBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
